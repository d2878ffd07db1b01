"""Pairs most worth labelling: those that raw vectors and the best recipe rank differently, and those near the border."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from bertflow.arrays import Matrix, cosine_of_pairs, unit_rows
from bertflow.errors import InputError
from bertflow.storage.atomic import atomic_file

MOST = 2000  # sentences among which pairs are looked for: all are compared
NEAREST = 3
COLUMNS = ("sentence1", "sentence2", "score")

Ends = npt.NDArray[np.int64]


def pairs_to_label(raw: Matrix, other: Matrix, count: int, seed: int = 0) -> Ends:
    """Choose pairs (count, 2) of n sentences, each sentence at most once.

    Half are those whose place differs most between the two spaces, a quarter lies near the border of alike and unlike, and a
    quarter is drawn at random, so that easy pairs are among them.

    Args:
        raw: Raw vectors (n, d).
        other: Those of the recipe in question (n, k).
        count: How many; fewer are returned where there are not enough sentences.
        seed: Draws sentences and random pairs.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(raw))[:MOST])
    near = _candidates(raw[rows], other[rows])
    far = rng.permuted(np.tile(np.arange(len(rows)), (2, 1)), axis=1).T
    ends = np.concatenate([near, far[far[:, 0] != far[:, 1]]])
    places = [rankdata(cosine_of_pairs(x[rows[ends[:, 0]]], x[rows[ends[:, 1]]])) / len(ends) for x in (raw, other)]
    disagreement = np.abs(places[0] - places[1])
    border = np.abs(np.mean(places, axis=0) - len(far) / len(ends))  # random pairs are unlike, and come last
    orders = (np.argsort(-disagreement, kind="stable"), np.argsort(border, kind="stable"), rng.permutation(len(ends)))
    shares = (count // 2, count // 4, count - count // 2 - count // 4)
    used: set[int] = set()
    chosen = [row for order, share in zip(orders, shares, strict=True) for row in _unused(order, ends, share, used)]
    return rows[ends[rng.permutation(chosen)]] if chosen else np.empty((0, 2), dtype=np.int64)


def write_pairs(path: str | Path, sentences: list[str], ends: Iterable[Iterable[int]]) -> None:
    """Write pairs as a .tsv file with an empty column for the score."""
    if Path(path).suffix.lower() != ".tsv":
        raise InputError(f"Pairs to label are written as .tsv; {str(path)!r} is none. Name it so.")
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*(" ".join(sentences[end].split()) for end in pair), ""] for pair in ends)


def _candidates(*spaces: Matrix) -> Ends:
    """Each sentence with its nearest ones in either space; every such pair once (m, 2)."""
    found = []
    for x in spaces:
        units = unit_rows(x.astype(np.float32))
        cosines = units @ units.T
        np.fill_diagonal(cosines, -np.inf)
        k = min(NEAREST, len(x) - 1)
        near = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        found.append(np.stack([np.repeat(np.arange(len(x)), k), near.ravel()], axis=1))
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def _unused(order: Ends, ends: Ends, count: int, used: set[int]) -> list[int]:
    """Take the first ``count`` pairs of an order whose sentences are not taken yet."""
    taken: list[int] = []
    for row in order.tolist():
        if len(taken) == count:
            break
        one, other = ends[row].tolist()
        if one not in used and other not in used:
            used |= {one, other}
            taken.append(row)
    return taken
