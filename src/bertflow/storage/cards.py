"""The model card: a README.md whose YAML the Hugging Face hub reads, with results as they were measured.

A result is a plain dictionary, ``{"task", "dataset", "metric", "value"}`` and what else is known of it; scores are ×100,
as everywhere in bertflow. It stands in config.json, and in the card as a ``model-index``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertflow.data import MINI, MINI_VERSION
from bertflow.errors import InputError

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from bertflow.evaluation import Score

Result = dict[str, Any]

SIMILARITY = "sentence-similarity"
TAGS = ("bertflow", "bert-flow", SIMILARITY, "feature-extraction", "sentence-embeddings")
_WANTED = ("task", "dataset", "metric", "value")
_METRICS = {  # ours → (the name that MTEB's cards use, for readers)
    "spearman": ("cos_sim_spearman", "Spearman ×100 of cosines"),
    "pearson": ("cos_sim_pearson", "Pearson ×100 of cosines"),
    "auc": ("cos_sim_auc", "AUC ×100 of cosines"),
    "ndcg@10": ("ndcg_at_10", "nDCG@10 ×100"),
    "mrr@10": ("mrr_at_10", "MRR@10 ×100"),
    "recall@100": ("recall_at_100", "recall@100 ×100"),
    "v-measure": ("v_measure", "V-measure ×100 of KMeans"),
}
_TASKS = {"pairs": SIMILARITY, "queries": "retrieval", "texts": "clustering"}  # by what was judged
_NAME_IN_CARD = re.compile(r'from_pretrained\("(.+)"\)')


def measured(dataset: str, score: Score, split: str | None = "test") -> Result:
    """Return a measured score as a result.

    Args:
        dataset: Its name, such as ``"STS-B"``.
        score: From ``bertflow.evaluation.evaluate_task``.
        split: Which part of the data set, if it has parts.
    """
    kept = ("metric", "value", "low", "high", "confidence", "setting")
    figures = {name: getattr(score, name) for name in kept} | {score.unit: score.size}
    return {"task": _TASKS[score.unit], "dataset": dataset, "split": split, **figures}


def merged(known: Iterable[Result], new: Iterable[Result]) -> list[Result]:
    """Return the known results and the new ones, which replace those measured in the same way."""
    results = {}
    for result in [*known, *new]:
        odd = [name for name in _WANTED if result.get(name) is None]
        if odd:
            raise InputError(f"A result needs {', '.join(_WANTED)}; this one has no {odd[0]}: {result!r:.200}")
        if not isinstance(result["value"], int | float) or not math.isfinite(result["value"]):
            raise InputError(
                f"A result's value is a finite number; that of {result['dataset']} is {result['value']!r}."
            )
        results[tuple(result.get(name) for name in ("task", "dataset", "split", "metric", "setting"))] = result
    return list(results.values())


def model_card(config: dict[str, Any], name: str) -> str:
    """Return the README.md of a saved model or calibrator.

    Args:
        config: What config.json says: ``encoder`` and ``parts``, or ``calibrator`` alone, and where known ``recipe``,
            ``training``, ``results``, ``card``.
        name: What to load it by: a folder or an id on the hub.
    """
    from huggingface_hub import ModelCardData

    encoder, calibrators = config.get("encoder"), _calibrators(config)
    results = merged((), config.get("results", ()))
    base = encoder["name"] if encoder and is_hub_id(encoder["name"]) else None
    front = {
        "library_name": "bertflow",
        "pipeline_tag": SIMILARITY if encoder else "feature-extraction",
        "tags": [*TAGS, *dict.fromkeys(calibrator["class"] for calibrator in calibrators)],
        "base_model": base,
        "base_model_relation": "adapter" if base else None,  # frozen, with a small map on top: not a fine-tune
        "model_name": Path(name).name if results else None,
        "eval_results": _eval_results(results) or None,
        **config.get("card", {}),  # such as the license, which only the author knows
    }
    training = dict(config.get("training", {}))
    parts = [
        f"---\n{ModelCardData(**front).to_yaml()}\n---",
        _of_model(config, name) if encoder else _of_calibrator(calibrators[0], name),
        _results_table(results) if results else "",
        _training_data(training.pop("sentences", None), training.pop("sentences_sha256", None)),
        "## Settings\n\n" + _table(("setting", "value"), _settings(config, training)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def renewed(card: str, old: dict[str, Any], new: dict[str, Any], name: str | None = None) -> str:
    """Return a card for a changed config or name; where someone wrote into it, their text stays as it is.

    Args:
        card: The README.md as it is.
        old: The config that it was written for.
        new: The config that it should speak of; in a card with someone's own text only its results are taken up.
        name: What to load the model by, if that changed.
    """
    from huggingface_hub import ModelCard

    found = _NAME_IN_CARD.search(card)
    if found and card == model_card(old, found[1]):
        return model_card(new, name or found[1])
    if old == new:
        return card
    ours = _eval_results(merged((), new.get("results", ())))
    edited = ModelCard(card)
    data: Any = edited.data
    theirs = [r for r in data.eval_results or () if not any(r.is_equal_except_value(new) for new in ours)]
    data.eval_results = [*theirs, *ours]
    data.model_name = data.model_name or _title(new)
    return str(edited)


def is_hub_id(name: str) -> bool:
    """Whether a name can be a model on the hub: no local path, not ours."""
    return (
        name not in (MINI, MINI_VERSION)
        and bool(re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name, re.ASCII))
        and not Path(name).exists()
    )


def _calibrators(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Settings of a model's calibrators, or of the calibrator alone."""
    return [part["calibrator"] for part in config.get("parts", ())] or [config["calibrator"]]


def _title(config: dict[str, Any]) -> str:
    """The recipe's name, or the calibrators' classes."""
    return str(config.get("recipe") or " beside ".join(calibrator["class"] for calibrator in _calibrators(config)))


def _settings(config: dict[str, Any], training: dict[str, Any]) -> list[tuple[str, Any]]:
    """Rows of the table of settings: each part's view and calibrator, then what is known of the fit."""
    parts = config.get("parts") or [{"calibrator": config["calibrator"]}]
    rows = [("recipe", config.get("recipe"))]
    for number, part in enumerate(parts, 1):
        head = f"part {number}: " if len(parts) > 1 else ""
        for known in (part.get("view"), part["calibrator"]):
            if known:
                rows.append((f"{head}{known['class']}", ""))
                rows += [(f"{head}{name}", value) for name, value in known["params"].items() if value is not None]
    return [row for row in [*rows, *training.items()] if row[1] is not None and row[1] != ""]


def _of_model(config: dict[str, Any], name: str) -> str:
    encoder = config["encoder"]
    short = encoder["name"] if is_hub_id(encoder["name"]) else Path(encoder["name"]).name  # no path of this machine
    views = " beside ".join(_view(part["view"], encoder) for part in config["parts"])
    return f"""# {Path(encoder["name"]).name} + {_title(config)}

Sentence vectors of the frozen encoder `{short}` ({views}), calibrated without labels by bertflow: a fixed map, fitted on
unlabelled sentences and applied after pooling, so that cosine tells similar from dissimilar sentences better. Whether it
does on your text: `bertflow compare`.

```python
from bertflow import BertFlow

model = BertFlow.from_pretrained("{name}")
model.encode("One sentence.")
```"""


def _view(view: dict[str, Any], encoder: dict[str, Any]) -> str:
    if view["class"] != "Pooled":
        return str(view["class"])
    return f"pooling: {view['params'].get('pooling') or encoder.get('pooling') or 'its own'}"


def _of_calibrator(calibrator: dict[str, Any], name: str) -> str:
    width, kind = calibrator.get("n_features_in", "d"), calibrator["class"]
    return f"""# {kind} for sentence vectors of {width} dimensions

A calibrator of bertflow: a fixed map, fitted without labels on sentence vectors (n, {width}) and to be applied to vectors
of the same encoder, after pooling and before cosine.

```python
from bertflow import Calibrator

calibrator = Calibrator.from_pretrained("{name}")
calibrator.transform(vectors)
```"""


def _results_table(results: list[Result]) -> str:
    rows = []
    for r in results:
        what = _METRICS.get(r["metric"], ("", r["metric"]))[1]
        interval = "" if r.get("low") is None else f"{r['low']:.2f} – {r['high']:.2f} ({r['confidence']:.0%})"
        judged = next((f"{r[unit]} {unit}" for unit in _TASKS if r.get(unit)), None)
        rows.append((r["dataset"], r.get("split"), what, r.get("setting"), f"{r['value']:.2f}", interval, judged))
    columns = ("data set", "split", "metric", "sub-sets joined by", "value", "interval", "judged on")
    return "## Results\n\n" + _table(columns, rows)


def _training_data(sentences: int | None, fingerprint: str | None) -> str:
    if sentences is None:
        return ""
    text = f"## Training data\n\n{sentences} different sentences, without labels."
    return f"{text} SHA-256 of them, joined by line feeds:\n`{fingerprint}`" if fingerprint else text


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    cells = [["" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    known = [row for row in cells if row[1:] != [""]]  # a setting that is not set is not worth a line
    head = list(columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *known])


def _eval_results(results: Iterable[Result]) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type=r["task"],
            dataset_type=re.sub(r"[^\w.]+", "-", r["dataset"].lower()).strip("-"),
            dataset_name=r["dataset"],
            dataset_split=r.get("split"),
            metric_type=_METRICS.get(r["metric"], (r["metric"],))[0],
            metric_name=", ".join(
                part for part in (_METRICS.get(r["metric"], ("", r["metric"]))[1], r.get("setting")) if part
            ),
            metric_value=r["value"],
        )
        for r in results
    ]
