"""The demo: fit on the sentences that ship inside, measure before and after on the graded pairs, tell the truth, show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bertflow.arrays import Matrix, cosine_of_pairs, unit_rows
from bertflow.data import MINI, GradedPair, sample_pairs, sample_sentences
from bertflow.encoder import Encoder
from bertflow.evaluation import PairSet, Task
from bertflow.inspection import Spaces
from bertflow.model import BertFlow
from bertflow.remembering import Remembering
from bertflow.report import Origin, report_spaces

QUERIES = (
    "The doctor told him to rest for a week.",
    "How do I undo my last commit?",
    "Heavy rain flooded the streets of the town.",
)
NEIGHBOURS = 3
REPORT = "report.html"
NOTICEABLE = 1.0  # points of Spearman ×100; less is noise with a few hundred pairs


@dataclass(frozen=True)
class Comparison:
    """One figure before and after calibration."""

    name: str
    pairs: int
    before: float
    after: float


@dataclass(frozen=True)
class Search:
    """The nearest sentences of a query before and after, each with its cosine."""

    query: str
    before: list[tuple[str, float]]
    after: list[tuple[str, float]]


@dataclass(frozen=True)
class DemoResult:
    """All that the demo shows."""

    sentences: int
    spearman: list[Comparison]
    random_cosine: Comparison
    searches: list[Search]
    training: dict[str, Any]
    saved: str
    report: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self) | {"verdict": self.verdict()}

    def verdict(self) -> str:
        """Say in plain words what the figures say, also where the flow does worse."""
        cosine = self.random_cosine
        spread = (
            f"Random sentences {'no longer' if cosine.after < cosine.before / 2 else 'still'} look alike "
            f"(mean cosine {cosine.before:.2f} → {cosine.after:.2f})."
        )
        changes = [c.after - c.before for c in self.spearman]
        better, worse = (sum(sign * change > NOTICEABLE for change in changes) for sign in (1, -1))
        ranking = (
            f"In ranking the shipped pairs it is better in {better} and worse in {worse} of {len(changes)} lines "
            f"({min(changes):+.1f} to {max(changes):+.1f}; less than {NOTICEABLE:g} point is noise)."
        )
        return f"{spread} {ranking} Whether calibration helps depends on the text: measure it on yours."


def run_demo(
    folder: str | Path = "bertflow-demo", *, random_state: int = 0, show_progress_bar: bool = False
) -> DemoResult:
    """Fit mini on the shipped sentences, save the model to ``folder``, compare raw with calibrated vectors, write a report."""
    sentences, pairs = sample_sentences(), sample_pairs()
    texts = [*sentences, *(p.sentence1 for p in pairs), *(p.sentence2 for p in pairs), *QUERIES]
    encoder = Encoder(MINI)
    known = Remembering(encoder, show_progress_bar=show_progress_bar)
    raw = known.encode(texts)
    fitted = BertFlow.fit(sentences, known, random_state=random_state, show_progress_bar=show_progress_bar)
    model = BertFlow(encoder, fitted.calibrator, fitted.training)
    both = raw, model.calibrator.transform(raw)
    n, m = len(sentences), len(pairs)
    graded = [_split(vectors, n, m) for vectors in both]
    searches = [
        Search(query, *(_nearest(v[-len(QUERIES) + i], v[:n], sentences) for v in both))
        for i, query in enumerate(QUERIES)
    ]
    saved = model.save_pretrained(folder)
    report = report_spaces(
        _spaces(model, sentences, both, known, random_state),
        saved / REPORT,
        pairs=_task(pairs),
        origin=Origin(title="The sentences that ship with bertflow"),
    )
    return DemoResult(
        sentences=n,
        spearman=_by_kind(pairs, *graded),
        random_cosine=Comparison("mean cosine of random pairs", n, *(_random_cosine(v[:n]) for v in both)),
        searches=searches,
        training=model.training,
        saved=str(saved),
        report=report.path,
    )


def _spaces(
    model: BertFlow, sentences: list[str], both: tuple[Matrix, Matrix], known: Remembering, random_state: int
) -> Spaces:
    n = len(sentences)
    settings = {
        "encoder": model.encoder.name,
        "pooling": getattr(model.encoder, "pooling", None),
        "calibrator": "flow",
        "fitted_on": "this corpus",
        "sentences": n,
        "random_state": random_state,
    }
    return Spaces(
        sentences=sentences,
        encoder=model.encoder,
        calibrator=model.calibrator,
        before=both[0][:n],
        after=both[1][:n],
        embed=known.encode,
        random_state=random_state,
        settings=settings,
    )


def _task(pairs: Sequence[GradedPair]) -> Task:
    first, second = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    graded = PairSet(first, second, np.array([pair.score for pair in pairs]))
    return Task("the shipped pairs", "spearman", {"all": graded}, list(dict.fromkeys(first + second)))


def _split(vectors: Matrix, n: int, m: int) -> Matrix:
    return cosine_of_pairs(vectors[n : n + m], vectors[n + m : n + 2 * m])


def _by_kind(pairs: Sequence[GradedPair], before: Matrix, after: Matrix) -> list[Comparison]:
    """Spearman ×100 against the grades: all pairs, the ordinary ones, and the ordinary plus each hard kind.

    A hard kind alone has nearly one grade (a negation is always about 2), and a correlation within it says nothing; what
    matters is whether its pairs are ranked right among ordinary ones.
    """
    gold = np.array([pair.score for pair in pairs])
    kind = np.array([pair.kind for pair in pairs])
    groups = {"all": np.full(len(pairs), True), "ordinary": kind == "graded"}
    groups |= {f"ordinary + {k}": (kind == "graded") | (kind == k) for k in sorted(set(kind) - {"graded"})}
    return [
        Comparison(name, int(rows.sum()), *(100 * float(spearmanr(c[rows], gold[rows])[0]) for c in (before, after)))
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
