"""What is new here? Texts with nothing near them in a corpus, told by their neighbours in the calibrated space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix
from bertflow.corpus.neighbours import nearest_rows
from bertflow.corpus.significance import Significance
from bertflow.corpus.vectors import Indices, Model, distinct, given_units
from bertflow.errors import InputError

NEIGHBOURS = 10

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outlier:
    """A text and how near its neighbours are.

    Args:
        rank: From 1, the farthest from all others.
        row: Where it stands first among the texts given, from 0.
        times: How often it occurs.
        text: The text.
        cosine: Mean cosine to its nearest neighbours.
        nearest: Row of the nearest one, in the corpus it was compared with.
        nearest_text: That text.
        nearest_cosine: Its cosine.
        expected: How many unrelated texts of the corpus are expected to be as near as the nearest one.
        unrelated: Whether that is one or more: nothing is nearer than unrelated texts are anyway.
        z: Robust standard deviations above (below: negative) the median log-density, where the model has a flow.
    """

    rank: int
    row: int
    times: int
    text: str
    cosine: float
    nearest: int
    nearest_text: str
    nearest_cosine: float
    expected: float
    unrelated: bool
    z: float | None = None


@dataclass(frozen=True)
class Outliers:
    """The texts that are farthest from all others.

    Args:
        texts: How many different ones were looked at.
        corpus: How many different ones they were compared with.
        unrelated: How many have nothing near them that is nearer than unrelated texts are.
        threshold: What is nearer than this is nearer than one unrelated text of the corpus is expected to be.
        entries: The farthest first.
    """

    texts: int
    corpus: int
    unrelated: int
    threshold: float
    entries: tuple[Outlier, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find_outliers(
    texts: Sequence[str],
    model: Model | None = None,
    *,
    vectors: object = None,
    against: Sequence[str] | None = None,
    against_vectors: object = None,
    top: int = 20,
    neighbours: int = NEIGHBOURS,
    significance: Significance | None = None,
    random_state: int = 0,
    show_progress_bar: bool = False,
) -> Outliers:
    """List the texts that are farthest from their nearest neighbours.

    Args:
        texts: n texts; repeated ones are looked at once.
        model: Encodes them.
        vectors: Their vectors (n, d), instead of a model.
        against: The corpus that they are new to, or not; default: the other texts.
        against_vectors: Its vectors, where ``vectors`` are given.
        top: How many to list.
        neighbours: How many nearest ones count.
        significance: What a cosine means; default: fitted on the corpus.
        random_state: Draws the pairs for that.
        show_progress_bar: Show progress.

    Example:
        >>> find_outliers(new, model, against=corpus).entries[0].text  # doctest: +SKIP
    """
    if top < 1 or neighbours < 1:
        raise InputError(f"top is {top!r} and neighbours {neighbours!r}; 1 or more was wanted of each.")
    given, number = distinct(texts)
    rows = given_units(given, number, model, vectors)
    known, known_number, base = given, number, rows
    if against is not None:
        known, known_number = distinct(against)
        base = given_units(known, known_number, model, against_vectors)
    significance = significance or Significance.fit(base, random_state=random_state)
    others = len(base) - (against is None)
    cosines, numbers = nearest_rows(rows, base, neighbours, own=against is None, show_progress_bar=show_progress_bar)
    expected = others * significance.exceedance(cosines[:, 0])
    return Outliers(
        texts=len(given),
        corpus=len(known),
        unrelated=int((expected >= 1).sum()),
        threshold=significance.threshold_of_share(1 / others),
        entries=_entries(given, number, known, known_number, cosines, numbers, expected, _density_z(given, model), top),
    )


def novelty_scores(vectors: Matrix, corpus: Matrix, neighbours: int = NEIGHBOURS) -> Vector:
    """Return 1 − mean cosine (n,) of unit rows (n, d) to the nearest ones of a corpus (m, d): the higher, the newer."""
    return 1 - nearest_rows(vectors, corpus, neighbours)[0].mean(axis=1, dtype=np.float64)


def _entries(
    given: list[str],
    number: Indices,
    known: list[str],
    known_number: Indices,
    cosines: Matrix,
    numbers: Indices,
    expected: Vector,
    z: Vector | None,
    top: int,
) -> tuple[Outlier, ...]:
    place, times = np.unique(number, return_index=True, return_counts=True)[1:]
    known_place = np.unique(known_number, return_index=True)[1]
    mean = cosines.mean(axis=1, dtype=np.float64)
    return tuple(
        Outlier(
            rank=rank,
            row=int(place[row]),
            times=int(times[row]),
            text=given[row],
            cosine=float(mean[row]),
            nearest=int(known_place[numbers[row, 0]]),
            nearest_text=known[numbers[row, 0]],
            nearest_cosine=float(cosines[row, 0]),
            expected=float(expected[row]),
            unrelated=bool(expected[row] >= 1),
            z=None if z is None or not np.isfinite(z[row]) else float(z[row]),
        )
        for rank, row in enumerate(np.argsort(mean, kind="stable")[:top].tolist(), start=1)
    )


def _density_z(texts: list[str], model: Any) -> Vector | None:
    """Return robust standard scores (n,) of the texts' log-density under a model's first flow; None without a flow."""
    for part in getattr(model, "parts", ()):
        if hasattr(part.calibrator, "score_samples"):
            found = np.asarray(part.calibrator.score_samples(part.view.encode(texts)), dtype=np.float64)
            middle = np.median(found)
            return (found - middle) / (1.4826 * np.median(np.abs(found - middle)) or 1.0)
    return None
