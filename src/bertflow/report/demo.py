"""The demo: fit on the sentences that ship inside, search and grade pairs with raw and calibrated vectors, tell the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bertflow.arrays import Matrix, cosine_of_pairs, unit_rows
from bertflow.data import MINI, GradedPair, sample_pairs, sample_sentences
from bertflow.encoders.transformer import Encoder
from bertflow.evaluation import PairSet, PairTask, SearchScore, SearchTask, score_search
from bertflow.evaluation.judgement import Judgement, judge
from bertflow.geometry import make_spaces
from bertflow.model import BertFlow
from bertflow.recipes import RAW, readings
from bertflow.report.verdict import Origin
from bertflow.report.writing import report_spaces
from bertflow.storage.remembering import Remembering

QUERIES = (
    "The doctor told him to rest for a week.",
    "How do I undo my last commit?",
    "Heavy rain flooded the streets of the town.",
)
NEIGHBOURS = 2
REPORT = "report.html"
SAME = 3.0  # grade from which one sentence of a pair should be found by the other
ORDINARY = "ordinary"
KINDS = RAW, FLOW, BEST = RAW, "flow", "best"


@dataclass(frozen=True)
class Figure:
    """One figure of each kind of vectors."""

    name: str
    pairs: int
    raw: float
    flow: float
    best: float


@dataclass(frozen=True)
class Nearest:
    """The nearest sentences of a query by each kind of vectors, each with its cosine."""

    query: str
    raw: list[tuple[str, float]]
    flow: list[tuple[str, float]]
    best: list[tuple[str, float]]


@dataclass(frozen=True)
class DemoResult:
    """All that the demo shows."""

    sentences: int
    search: dict[str, SearchScore]
    spearman: list[Figure]
    random_cosine: Figure
    nearest: list[Nearest]
    judgements: dict[str, Judgement]
    training: dict[str, Any]
    saved: str
    report: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self) | {"judgements": {name: one.to_dict() for name, one in self.judgements.items()}}


def run_demo(
    folder: str | Path = "bertflow-demo", *, random_state: int = 0, show_progress_bar: bool = False
) -> DemoResult:
    """Fit mini on the shipped sentences, save the model to ``folder``, compare raw with calibrated vectors, write a report."""
    sentences, pairs = sample_sentences(), sample_pairs()
    texts = [*sentences, *(p.sentence1 for p in pairs), *(p.sentence2 for p in pairs), *QUERIES]
    encoder = Encoder(MINI)
    known = Remembering(encoder, readings(KINDS, encoder), show_progress_bar=show_progress_bar)
    known.encode_views(texts, readings(KINDS, encoder))
    options: dict[str, Any] = {"random_state": random_state, "show_progress_bar": show_progress_bar}
    models = {kind: BertFlow.fit(sentences, known, recipe=kind, **options) for kind in KINDS}
    spaces, model = {kind: model.encode(texts) for kind, model in models.items()}, models[BEST]
    n, m = len(sentences), len(pairs)
    cosines = [cosine_of_pairs(vectors[n : n + m], vectors[n + m : n + 2 * m]) for vectors in spaces.values()]
    nearest = [
        Nearest(query, *(_nearest(v[i - len(QUERIES)], v[:n], sentences) for v in spaces.values()))
        for i, query in enumerate(QUERIES)
    ]
    saved = model.save_pretrained(folder)
    report = report_spaces(
        make_spaces(sentences, model=model, random_state=random_state),
        saved / REPORT,
        pairs=_task(pairs),
        origin=Origin(title="The sentences that ship with bertflow"),
    )
    return DemoResult(
        sentences=n,
        search={kind: _search(pairs, sentences, texts, vectors) for kind, vectors in spaces.items()},
        spearman=_by_kind(pairs, cosines),
        random_cosine=Figure("mean cosine of random pairs", n, *(_random_cosine(v[:n]) for v in spaces.values())),
        nearest=nearest,
        judgements={
            "search": judge(sentences, encoder, labels=_search_task(pairs, sentences), random_state=random_state),
            "grades": judge(sentences, encoder, labels=_task(pairs), random_state=random_state),
        },
        training=model.training,
        saved=str(saved),
        report=report.path,
    )


def _search(pairs: Sequence[GradedPair], sentences: list[str], texts: list[str], vectors: Matrix) -> SearchScore:
    """Search the second sentence of each pair of like meaning with the first, among all that ship."""
    row = {text: number for number, text in enumerate(texts)}
    alike = [pair for pair in pairs if pair.score >= SAME]
    return score_search(
        [pair.sentence1 for pair in alike],
        [pair.sentence2 for pair in alike],
        [*(pair.sentence2 for pair in pairs), *sentences],
        lambda wanted: vectors[[row[text] for text in wanted]],
    )


def _search_task(pairs: Sequence[GradedPair], sentences: list[str]) -> SearchTask:
    """The same search as a task."""
    alike = [pair for pair in pairs if pair.score >= SAME]
    documents = dict.fromkeys([*(pair.sentence2 for pair in pairs), *sentences])
    queries = {pair.sentence1: pair.sentence1 for pair in alike}
    return SearchTask(
        "the shipped pairs",
        queries,
        {text: text for text in documents},
        {pair.sentence1: {pair.sentence2: 1.0} for pair in alike},
        "mrr@10",
    )


def _task(pairs: Sequence[GradedPair]) -> PairTask:
    first, second = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    graded = PairSet(first, second, np.array([pair.score for pair in pairs]))
    return PairTask("the shipped pairs", "spearman", {"all": graded}, list(dict.fromkeys(first + second)))


def _by_kind(pairs: Sequence[GradedPair], cosines: list[Matrix]) -> list[Figure]:
    """Spearman ×100 against the grades: all pairs, the ordinary ones, and the ordinary plus each hard kind.

    A hard kind alone has nearly one grade (a negation is always about 2), and a correlation within it says nothing; what
    matters is whether its pairs are ranked right among ordinary ones.
    """
    gold = np.array([pair.score for pair in pairs])
    kind = np.array([pair.kind for pair in pairs])
    groups = {"all": np.full(len(pairs), True), ORDINARY: kind == "graded"}
    groups |= {f"{ORDINARY} + {k}": (kind == "graded") | (kind == k) for k in sorted(set(kind) - {"graded"})}
    return [
        Figure(name, int(rows.sum()), *(100 * float(spearmanr(c[rows], gold[rows])[0]) for c in cosines))
        for name, rows in groups.items()
    ]


def _random_cosine(vectors: Matrix) -> float:
    """Mean cosine over all pairs of distinct rows, exactly: (‖Σu‖² − n) / (n(n − 1))."""
    units = unit_rows(vectors.astype(np.float64))
    n = len(units)
    return float((np.square(units.sum(0)).sum() - n) / (n * (n - 1)))


def _nearest(query: Matrix, vectors: Matrix, sentences: Sequence[str]) -> list[tuple[str, float]]:
    cosines = unit_rows(vectors) @ unit_rows(query[None])[0]
    return [(sentences[row], float(cosines[row])) for row in np.argsort(-cosines)[:NEIGHBOURS]]
