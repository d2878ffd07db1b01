"""Duplicates: pairs nearer than unrelated texts get, and of each such group the one text to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from bertflow.corpus.neighbours import Pairs, pairs_above
from bertflow.corpus.significance import Significance
from bertflow.corpus.vectors import Indices, Model, distinct, given_units
from bertflow.errors import InputError

Keep = Literal["first", "longest", "central"]
Cosines = npt.NDArray[np.float64]
EQUAL = 1 - 1e-6  # equal vectors have a cosine of 1, but for rounding
BORDERLINE = 10  # pairs shown on either side of the threshold
BEYOND = 10.0  # times as many false pairs are allowed among those shown below it


@dataclass(frozen=True)
class Pair:
    """Two texts that are near each other.

    Args:
        first: Row of the one.
        second: Row of the other; with ``against`` a row of those texts.
        cosine: Of the two.
        expected_false: How many pairs of unrelated texts are expected to be as near, of all that were compared.
    """

    first: int
    second: int
    cosine: float
    expected_false: float


@dataclass(frozen=True)
class Duplicates:
    """What is a duplicate of what.

    Args:
        texts: How many there are.
        threshold: Texts of at least this cosine are duplicates.
        expect_false: So many pairs of unrelated texts are expected to reach it.
        kept: Rows to keep, ascending. No two of them are duplicates of each other.
        removed: The others, ascending. Each is a duplicate of the row it stands for.
        groups: Rows of each group of two or more, the kept one first; with ``against`` there are none.
        pairs: All pairs that reach the threshold, nearest first; of equal texts only those with the first of them.
        borderline: Pairs just above and just below the threshold, to be looked at.
    """

    texts: int
    threshold: float
    expect_false: float
    kept: tuple[int, ...]
    removed: tuple[Pair, ...]
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[Pair, ...]
    borderline: tuple[Pair, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find_duplicates(
    texts: Sequence[str],
    model: Model | None = None,
    *,
    vectors: object = None,
    against: Sequence[str] | None = None,
    against_vectors: object = None,
    expect_false: float = 1.0,
    keep: Keep = "first",
    significance: Significance | None = None,
    random_state: int = 0,
    show_progress_bar: bool = False,
) -> Duplicates:
    """Find texts that are nearer to each other than unrelated texts get.

    Args:
        texts: n texts; equal ones are duplicates in any case.
        model: Encodes them.
        vectors: Their vectors (n, d), instead of a model.
        against: Other texts: which of ``texts`` have a duplicate among these, such as a test set in a training set?
        against_vectors: Their vectors, where ``vectors`` are given.
        expect_false: How many pairs of unrelated texts may be taken for duplicates.
        keep: Of near texts, keep the first, the longest or the most central.
        significance: What a cosine means; default: fitted on the texts themselves.
        random_state: Draws the pairs for that.
        show_progress_bar: Show progress.

    Example:
        >>> find_duplicates(texts, model).kept  # doctest: +SKIP
    """
    if keep not in get_args(Keep):
        raise InputError(f"keep is {keep!r}; {', '.join(get_args(Keep))} are known.")
    given, number = distinct(texts)
    rows = given_units(given, number, model, vectors)
    if against is None:
        significance = significance or Significance.fit(rows, random_state=random_state)
        scale = _Scale(significance, expect_false, max(1.0, len(rows) * (len(rows) - 1) / 2))
        pairs = pairs_above(rows, scale.loose, show_progress_bar=show_progress_bar)
        return _within(given, number, pairs, scale, keep)
    others, other_number = distinct(against)
    base = given_units(others, other_number, model, against_vectors)
    significance = significance or Significance.fit(np.concatenate([rows, base]), random_state=random_state)
    scale = _Scale(significance, expect_false, float(len(rows)) * len(base))
    pairs = pairs_above(rows, scale.loose, base, show_progress_bar=show_progress_bar)
    return _against(*scale.split(pairs), number, other_number, scale)


class _Scale:
    """Thresholds for so many pairs compared."""

    def __init__(self, significance: Significance, expect_false: float, compared: float) -> None:
        if not 0 < expect_false < compared:
            raise InputError(
                f"expect_false is {expect_false!r}; a number above 0 and below {compared:.0f}, the pairs compared, was wanted."
            )
        self.significance, self.expect_false, self.compared = significance, expect_false, compared
        shares = np.array([1.0, BEYOND]) * expect_false / compared
        cosines = [min(significance.threshold_of_share(share), EQUAL) for share in shares.tolist()]
        self.threshold, self.loose = cosines

    def judged(self, first: Indices, second: Indices, cosines: Any) -> tuple[Pair, ...]:
        """Return pairs (p,) with how many unrelated ones are expected to be as near."""
        expected = self.compared * self.significance.exceedance(cosines) if len(cosines) else np.empty(0)
        columns = (np.asarray(one).tolist() for one in (first, second, cosines, expected))
        return tuple(map(Pair, *columns))

    def split(self, pairs: Pairs) -> tuple[Pairs, Pairs]:
        """Return the pairs that reach the threshold, and those on either side of it."""
        count = int((pairs.cosine >= self.threshold).sum())
        return pairs.part(slice(count)), pairs.part(slice(max(0, count - BORDERLINE), count + BORDERLINE))


def _first_rows(number: Indices) -> Indices:
    """Return where each distinct text stands first."""
    return np.unique(number, return_index=True)[1].astype(np.int64)


def _within(given: list[str], number: Indices, pairs: Pairs, scale: _Scale, keep: Keep) -> Duplicates:
    near, borderline = scale.split(pairs)
    place = _first_rows(number)
    target, cosine = _standing_for(given, near, keep)
    rows = np.arange(len(number))
    stays = rows == place[target[number]]
    groups: dict[int, list[int]] = {row: [row] for row in rows[stays].tolist()}
    for row in rows[~stays].tolist():
        groups[int(place[target[number[row]]])].append(row)
    copies = rows[rows != place[number]]
    return Duplicates(
        texts=len(number),
        threshold=scale.threshold,
        expect_false=scale.expect_false,
        kept=tuple(rows[stays].tolist()),
        removed=scale.judged(rows[~stays], place[target[number[~stays]]], cosine[number[~stays]]),
        groups=tuple(tuple(group) for group in groups.values() if len(group) > 1),
        pairs=(
            *scale.judged(place[number[copies]], copies, np.ones(len(copies))),
            *scale.judged(place[near.first], place[near.second], near.cosine),
        ),
        borderline=scale.judged(place[borderline.first], place[borderline.second], borderline.cosine),
    )


def _standing_for(given: list[str], near: Pairs, keep: Keep) -> tuple[Indices, Cosines]:
    """Return, for each distinct text (n,), the kept text that is nearest to it, which may be itself, and their cosine (n,).

    A text is kept unless a better one that is kept is near: so each removed one has its kept one, and no two kept are near.
    """
    n = len(given)
    ends = np.concatenate([near.first, near.second]), np.concatenate([near.second, near.first])
    graph = csr_array((np.tile(near.cosine, 2), ends), shape=(n, n))
    size = {"first": np.zeros(n), "longest": np.array([len(text) for text in given]), "central": graph.sum(axis=1)}[
        keep
    ]
    removed = np.zeros(n, dtype=bool)
    for row in np.argsort(-size, kind="stable").tolist():
        if not removed[row]:
            removed[graph.indices[graph.indptr[row] : graph.indptr[row + 1]]] = True
    target, cosine = np.arange(n), np.ones(n)
    for row in np.flatnonzero(removed).tolist():
        part = slice(graph.indptr[row], graph.indptr[row + 1])
        cosines = np.where(removed[graph.indices[part]], -np.inf, graph.data[part])
        target[row], cosine[row] = graph.indices[part][np.argmax(cosines)], cosines.max()
    return target, cosine


def _against(near: Pairs, borderline: Pairs, number: Indices, other_number: Indices, scale: _Scale) -> Duplicates:
    place, other_place = _first_rows(number), _first_rows(other_number)
    nearest: dict[int, int] = {}
    for pair, text in enumerate(near.first.tolist()):  # nearest pairs come first
        nearest.setdefault(text, pair)
    rows = np.arange(len(number))
    pair_of = np.array([nearest.get(text, -1) for text in number.tolist()])
    found = pair_of >= 0
    return Duplicates(
        texts=len(number),
        threshold=scale.threshold,
        expect_false=scale.expect_false,
        kept=tuple(rows[~found].tolist()),
        removed=scale.judged(rows[found], other_place[near.second[pair_of[found]]], near.cosine[pair_of[found]]),
        groups=(),
        pairs=scale.judged(place[near.first], other_place[near.second], near.cosine),
        borderline=scale.judged(place[borderline.first], other_place[borderline.second], borderline.cosine),
    )
