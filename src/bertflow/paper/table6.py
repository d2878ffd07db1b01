"""Table 6: raw similarity follows edit distance far more than people's judgement does; the flow reduces this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators import FlowCalibrator
from bertflow.data import MINI
from bertflow.encoders.base import TextEncoder
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.evaluation import load_pairs, metric_value, task_similarities
from bertflow.evaluation.scores import Vector
from bertflow.geometry.lexical import Counts, Tokenize, Unit, edit_distances, lexical_correlation
from bertflow.paper.layout import PaperTable, Row
from bertflow.storage.remembering import Remembering

UNITS = ("words", "wordpieces", "characters")


@dataclass(frozen=True, eq=False)
class LexicalMeasurement:
    """What Table 6 and Figure 2 are made of, for each of n pairs.

    Args:
        distances: Edit distance, (n,).
        gold: What people said, (n,).
        raw: Cosine of the encoder's vectors, (n,).
        flow: Cosine after the flow, (n,).
        settings: Encoder, seed and whatever else the figures depend on.
    """

    distances: Counts
    gold: Vector
    raw: Vector
    flow: Vector
    settings: dict[str, Any]


def run(encoder: Any = MINI, pooling: str | None = None, **options: Any) -> PaperTable:
    """Correlate gold, raw and flow-induced similarity with edit distance on STS-B dev; arguments as in ``measure``."""
    found = measure(encoder, pooling, **options)
    gold, raw, flow = (lexical_correlation(s, found.distances) for s in (found.gold, found.raw, found.flow))
    against = [metric_value("spearman", similarity, found.gold) for similarity in (found.raw, found.flow)]
    return PaperTable(
        name="Table 6",
        title="similarity and edit distance on STS-B dev, Spearman ×100",
        columns=("vs edit distance", "vs gold"),
        rows=(
            Row("gold", (-24.61, None), (gold, None)),
            Row("BERT-induced similarity", (-50.49, 59.30), (raw, against[0])),
            Row("flow-induced similarity (target)", (-28.01, 74.09), (flow, against[1])),
        ),
        settings=found.settings,
        notes=(_reading(gold, raw, flow),),
    )


def measure(
    encoder: Any = MINI,
    pooling: str | None = None,
    *,
    data: str | Path | None = None,
    unit: str = "words",
    seed: int = 0,
    preset: str = "default",
) -> LexicalMeasurement:
    """Measure similarities and edit distances of the STS-B dev pairs.

    The paper names neither split nor unit; dev and words, as SentEval tokenises, are those that give its figure for gold.

    Args:
        encoder: A name, a folder, a SentenceTransformer or an ``Encoder``.
        pooling: For a name or folder; by default ``"first-last-avg"``, which gives the paper's figures.
        data: The folder of data sets; see ``bertflow.evaluation.find_data``.
        unit: ``"words"``, ``"wordpieces"`` (the encoder's tokens) or ``"characters"``.
        seed: Of the flow.
        preset: Of the flow's training, which sees every sentence of train, dev and test, without labels.
    """
    if unit not in UNITS:
        raise InputError(f"There is no unit {unit!r}; use one of {', '.join(UNITS)}.")
    task = load_pairs("STS-B", data, split="dev")
    loaded = as_encoder(encoder, pooling)
    pairs = task.subsets["all"]
    distances = _distances(pairs.sentences1, pairs.sentences2, unit, loaded)
    embed = Remembering(loaded).encode
    flow = FlowCalibrator(preset=preset, random_state=seed).fit(embed(task.fit_sentences))

    def calibrated(sentences: list[str]) -> Matrix:
        return flow.transform(embed(sentences))

    raw, mapped = (task_similarities(task, method)["all"] for method in (embed, calibrated))
    settings = {
        "encoder": loaded.name,
        "pooling": getattr(loaded, "pooling", "its own"),
        "pairs": len(pairs),
        "unit": unit,
        "flow fitted on": f"{len(task.fit_sentences)} sentences",
        "preset": preset,
        "seed": seed,
    }
    return LexicalMeasurement(distances, np.asarray(pairs.gold), raw, mapped, settings)


def _distances(first: list[str], second: list[str], unit: str, encoder: TextEncoder) -> Counts:
    if unit == "wordpieces":
        return edit_distances(first, second, tokenize=_wordpieces(encoder))
    kind: Unit = "words" if unit == "words" else "characters"
    return edit_distances(first, second, kind)


def _wordpieces(encoder: TextEncoder) -> Tokenize:
    tokenizer = getattr(encoder, "tokenizer", None) or getattr(getattr(encoder, "model", None), "tokenizer", None)
    if tokenizer is None:
        raise InputError(f"{type(encoder).__name__} has no tokenizer; use the unit words or characters.")
    return tokenizer.tokenize


def _reading(gold: float, raw: float, flow: float) -> str:
    """Say in one sentence whether the flow brings the dependence on words nearer to people's."""
    nearer = abs(flow - gold) < abs(raw - gold)
    return (
        f"The flow takes the correlation with edit distance from {raw:.1f} to {flow:.1f}, "
        f"{'nearer to' if nearer else 'no nearer to'} people's {gold:.1f}."
    )
