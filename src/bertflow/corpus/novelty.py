"""What is new here? Texts with nothing near them in a corpus, or with vectors longer than any there, in the calibrated space.

New topics have no near neighbours. Garbage may have some, since a real corpus has garbage of its own, and a cosine does not
see that its vector is far too long; so the length is looked at too, part by part, and has to be more extreme to count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix
from bertflow.corpus.neighbours import nearest_rows
from bertflow.corpus.significance import Significance
from bertflow.corpus.vectors import Indices, Model, checked_units, distinct, given_vectors
from bertflow.errors import InputError

NEIGHBOURS = 10
REFERENCE = 5000  # texts of the corpus that tell what is usual there
LENGTH_WEIGHT = 10.0  # a length counts as a distance that is so many times as common

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outlier:
    """A text and how near its neighbours are.

    Args:
        rank: From 1, the farthest from all others.
        row: Where it stands first among the texts given, from 0.
        times: How often it occurs.
        text: The text.
        share: Share of the corpus's own texts that are as far out, by the one or the other.
        why: What puts it there: ``"neighbours"`` that are far or a ``"length"`` that is unusual.
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
    share: float
    why: str
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
    """List the texts that are farthest out: far from their nearest neighbours, or of unusual length.

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
    known, known_number = (given, number) if against is None else distinct(against)
    rows = given_vectors(given, number, model, vectors)
    base = rows if against is None else given_vectors(known, known_number, model, against_vectors)
    units, base_units = checked_units(rows), checked_units(base)
    significance = significance or Significance.fit(base_units, random_state=random_state)
    near = nearest_rows(units, base_units, neighbours, own=against is None, show_progress_bar=show_progress_bar)
    widths = part_widths(model, base.shape[1])
    usual = Usual.of(base, base_units, widths, neighbours, np.random.default_rng(random_state))
    by_cosine, by_length = usual.shares(near[0].mean(axis=1, dtype=np.float64), part_lengths(rows, widths))
    others = len(base) - (against is None)
    expected = others * significance.exceedance(near[0][:, 0])
    columns = {"neighbours": by_cosine, "length": by_length, "expected": expected, "z": _density_z(given, model)}
    return Outliers(
        texts=len(given),
        corpus=len(known),
        unrelated=int((expected >= 1).sum()),
        threshold=significance.threshold_of_share(1 / others),
        entries=_entries((given, number), (known, known_number), near, columns, top),
    )


class Usual(NamedTuple):
    """What is usual in a corpus, each sorted.

    Args:
        cosines: Mean cosines (n,) of its own texts to their nearest others.
        lengths: Of its vectors, for each part (n,).
    """

    cosines: Vector
    lengths: list[Vector]

    @classmethod
    def of(cls, base: Matrix, units: Matrix, widths: Sequence[int], neighbours: int, rng: np.random.Generator) -> Usual:
        """Learn it from vectors (m, d), by the neighbours of at most ``REFERENCE`` of them."""
        drawn = np.sort(rng.choice(len(units), min(len(units), REFERENCE), replace=False))
        nearest = nearest_rows(units[drawn], units, neighbours + 1)[0][:, 1:]  # the nearest is the text itself
        lengths = part_lengths(base, widths)
        return cls(np.sort(nearest.mean(axis=1, dtype=np.float64)), [np.sort(one) for one in lengths.T])

    def shares(self, cosines: Vector, lengths: Matrix) -> tuple[Vector, Vector]:
        """Return for n texts the share of the corpus's own whose neighbours are as far, and whose vectors are as long."""
        far = (np.searchsorted(self.cosines, cosines, side="right") + 1) / (len(self.cosines) + 1)
        count = len(self.lengths[0])
        shorter = [np.searchsorted(known, one) for known, one in zip(self.lengths, lengths.T, strict=True)]
        longest = LENGTH_WEIGHT * (count - np.max(shorter, axis=0) + 1) / (count + 1)
        return np.minimum(far, 1.0), np.minimum(longest, 1.0)


def novelty_scores(vectors: Matrix, corpus: Matrix, neighbours: int = NEIGHBOURS) -> Vector:
    """Return 1 − mean cosine (n,) of unit rows (n, d) to the nearest ones of a corpus (m, d): the higher, the newer."""
    return 1 - nearest_rows(vectors, corpus, neighbours)[0].mean(axis=1, dtype=np.float64)


def part_widths(model: Any, dim: int) -> list[int]:
    """Return how many dimensions each part of a model has; all in one where there are no parts."""
    widths = [int(part.calibrator.dim) for part in getattr(model, "parts", ())]
    return widths if sum(widths) == dim else [dim]


def part_lengths(rows: Matrix, widths: Sequence[int]) -> Matrix:
    """Return the length of each part of the vectors (n, d), as (n, parts)."""
    parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    return np.stack([np.linalg.norm(part, axis=1) for part in parts], axis=1)


def _entries(
    texts: tuple[list[str], Indices],
    corpus: tuple[list[str], Indices],
    near: tuple[Matrix, Indices],
    columns: dict[str, Any],
    top: int,
) -> tuple[Outlier, ...]:
    place, times = np.unique(texts[1], return_index=True, return_counts=True)[1:]
    known_place = np.unique(corpus[1], return_index=True)[1]
    cosines, numbers = near
    mean = cosines.mean(axis=1, dtype=np.float64)
    share = np.minimum(columns["neighbours"], columns["length"])
    z = columns["z"]
    return tuple(
        Outlier(
            rank=rank,
            row=int(place[row]),
            times=int(times[row]),
            text=texts[0][row],
            share=float(share[row]),
            why="neighbours" if columns["neighbours"][row] <= columns["length"][row] else "length",
            cosine=float(mean[row]),
            nearest=int(known_place[numbers[row, 0]]),
            nearest_text=corpus[0][numbers[row, 0]],
            nearest_cosine=float(cosines[row, 0]),
            expected=float(columns["expected"][row]),
            unrelated=bool(columns["expected"][row] >= 1),
            z=None if z is None or not np.isfinite(z[row]) else float(z[row]),
        )
        for rank, row in enumerate(np.lexsort((mean, share))[:top].tolist(), start=1)
    )


def _density_z(texts: list[str], model: Any) -> Vector | None:
    """Return robust standard scores (n,) of the texts' log-density under a model's first flow; None without a flow."""
    for part in getattr(model, "parts", ()):
        if hasattr(part.calibrator, "score_samples"):
            found = np.asarray(part.calibrator.score_samples(part.view.encode(texts)), dtype=np.float64)
            middle = np.median(found)
            return (found - middle) / (1.4826 * np.median(np.abs(found - middle)) or 1.0)
    return None
