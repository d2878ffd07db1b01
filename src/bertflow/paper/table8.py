"""Table 8: is the gain real, or only a lucky seed? Fine-tune on NLI with several seeds; STS-B with and without the flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.evaluation import cache_folder, find_data, load_task
from bertflow.evaluation.comparison import compare_recipes
from bertflow.paper.layout import PaperTable, Row
from bertflow.paper.nli_tuning import finetune_nli
from bertflow.paper.published import TABLE8
from bertflow.paper.sts import LAST2AVG, Options

TRAIN_FILES = ("snli_train_18k.tsv", "mnli_train_10k.tsv")


def run(options: Options, *, learning_rate: float = 2e-5, folder: Path | None = None) -> PaperTable:
    """Fine-tune once for each seed (finished models are kept and used again) and score on STS-B test.

    Args:
        options: ``encoder`` is the base; ``seeds`` counts the fine-tunings.
        learning_rate: Of the fine-tuning.
        folder: Where the fine-tuned models are kept; default: in bertflow's cache.
    """
    kept = f"{Path(options.encoder).name}-{as_encoder(options.encoder).fingerprint}-{learning_rate:g}"
    base = folder or cache_folder() / "table8" / kept  # another encoder of the same name is tuned again
    models = [_tuned(options, seed, learning_rate, base / f"seed-{seed}") for seed in range(options.seeds)]
    task = load_task("STS-B", options.data)
    calls = (("mean", "none"), (LAST2AVG, "none"), (LAST2AVG, options.flow))
    rows = []
    for (name, (mean, deviation)), (pooling, calibrator) in zip(TABLE8.items(), calls, strict=True):
        scores = [_score(str(model), pooling, calibrator, task, options) for model in models]
        ours = (float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else None)
        rows.append(Row(name, (mean, deviation), ours))
    settings = options.settings() | {"learning rate": f"{learning_rate:g}", "fine-tuned on": " + ".join(TRAIN_FILES)}
    notes = (
        "The paper fine-tunes BERT-large on all of SNLI and MNLI; compare the spread and the step, not the level.",
    )
    title = "STS-B test over seeds of the fine-tuning, Spearman ×100"
    return PaperTable("Table 8", title, ("mean", "sd over seeds"), tuple(rows), settings, notes)


def _tuned(options: Options, seed: int, learning_rate: float, folder: Path) -> Path:
    if (folder / "finetuning.json").is_file():
        return folder
    files = [find_data(options.data) / "nli" / name for name in TRAIN_FILES]
    missing: Sequence[Path] = [file for file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"{missing[0]} is missing: Table 8 fine-tunes on it. Set BERTFLOW_DATA to a folder that has it."
        )
    return finetune_nli(
        folder,
        files,
        options.encoder,
        learning_rate=learning_rate,
        seed=seed,
        device=options.device,
        show_progress_bar=options.show_progress_bar,
    )


def _score(model: str, pooling: str, calibrator: str, task: object, options: Options) -> float:
    encoder = as_encoder(model, pooling, device=options.device)
    result = compare_recipes(encoder, [task], [calibrator], resamples=0)  # type: ignore[list-item]
    return result.results[calibrator]["STS-B"].value
