"""Pairs of sentences in either space: labelled ones where given, otherwise neighbours and random ones of the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from bertflow.arrays import Matrix, cosine_of_pairs
from bertflow.errors import MissingExtraError
from bertflow.evaluation import Comparison, PairTask, Score, compare, score_pairs, task_similarities
from bertflow.evaluation.scores import Setting
from bertflow.geometry import BeforeAfter, Spaces
from bertflow.geometry.association import Vector
from bertflow.geometry.lexical import LexicalSummary, edit_distances, lexical_summary
from bertflow.geometry.neighbours import nearest
from bertflow.geometry.rows import sample_indices

SEARCHED = 5000  # sentences among which neighbours are looked for: all pairs are compared
PLOTTED = 2000  # pairs in a scatter of similarity against edit distance


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of sentences and their cosines.

    Args:
        first: n sentences.
        second: The others.
        cosine: Cosines (n,) in either space.
        gold: People's scores (n,), where there are any.
    """

    first: list[str]
    second: list[str]
    cosine: BeforeAfter[Vector]
    gold: Vector | None = None

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: Sequence[int]) -> Pairs:
        """Return some of the pairs."""
        kept = list(rows)
        return Pairs(
            [self.first[i] for i in kept],
            [self.second[i] for i in kept],
            BeforeAfter(self.cosine.before[kept], self.cosine.after[kept]),
            None if self.gold is None else self.gold[kept],
        )


@dataclass(frozen=True, eq=False)
class Grades:
    """What labelled pairs say.

    Args:
        pairs: The pairs.
        score: Of either space against gold, with bootstrap intervals.
        change: After minus before, by paired bootstrap.
    """

    pairs: Pairs
    score: BeforeAfter[Score]
    change: Comparison


@dataclass(frozen=True, eq=False)
class LexicalView:
    """Similarity against edit distance in words.

    Args:
        pairs: n pairs.
        edits: Their distances, (n,).
        summary: Of either space, over all pairs.
        gold: The same of people's scores.
    """

    pairs: Pairs
    edits: npt.NDArray[np.int64]
    summary: BeforeAfter[LexicalSummary]
    gold: LexicalSummary | None


@dataclass(frozen=True)
class Move:
    """A pair and how its rank changed; rank 1 is the most similar.

    Args:
        first: One sentence.
        second: The other.
        cosine: In either space.
        rank: Among all pairs, in either space.
        gold: People's score.
        gold_rank: Its rank by people's score.
    """

    first: str
    second: str
    cosine: BeforeAfter[float]
    rank: BeforeAfter[float]
    gold: float | None = None
    gold_rank: float | None = None

    @property
    def change(self) -> float:
        """Places gained (up, more similar) or lost."""
        return self.rank.before - self.rank.after

    @property
    def better(self) -> bool | None:
        """Whether it came nearer to the rank that people gave it."""
        if self.gold_rank is None:
            return None
        return abs(self.rank.after - self.gold_rank) < abs(self.rank.before - self.gold_rank)


def grade(spaces: Spaces, task: PairTask) -> Grades:
    """Score both spaces on labelled pairs."""
    raw, calibrated = spaces.embed(task.sentences)
    both = [task_similarities(task, lambda _: raw), task_similarities(task, lambda _: calibrated)]
    setting: Setting = "all" if task.subsets_lost or len(task.subsets) == 1 else "wmean"
    seed = spaces.random_state
    scores = [score_pairs(values, task.gold, task.metric, setting, seed=seed) for values in both]
    change = compare(both[1], both[0], task.gold, task.metric, setting, seed=seed)
    sets = task.subsets.values()
    cosines = [np.concatenate([values[name] for name in task.subsets]) for values in both]
    pairs = Pairs(
        [text for pairs in sets for text in pairs.sentences1],
        [text for pairs in sets for text in pairs.sentences2],
        BeforeAfter(*cosines),
        np.concatenate([pairs.gold for pairs in sets]),
    )
    return Grades(pairs, BeforeAfter(*scores), change)


def neighbour_pairs(spaces: Spaces) -> Pairs:
    """Each sentence with its nearest by cosine, before and after: every such pair once."""
    rows = sample_indices(len(spaces.sentences), SEARCHED, spaces.random_state)
    near = [nearest(x[rows], 1, "cosine")[1][:, 0] for x in (spaces.before, spaces.after)]
    own = np.concatenate([np.arange(len(rows))] * 2)
    ends = np.sort(np.stack([own, np.concatenate(near)], axis=1), axis=1)
    return pairs_of(spaces, rows[np.unique(ends, axis=0)])


def random_pairs(spaces: Spaces, count: int) -> Pairs:
    """Different sentences, drawn at random."""
    return pairs_of(spaces, random_ends(len(spaces.sentences), count, spaces.random_state))


def random_ends(n: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return ``count`` pairs of different numbers below n, (count, 2)."""
    rng = np.random.default_rng(seed)
    first = rng.integers(n, size=count)
    return np.stack([first, (first + rng.integers(1, n, size=count)) % n], axis=1)


def pairs_of(spaces: Spaces, ends: npt.NDArray[np.int64]) -> Pairs:
    """Make pairs of the corpus' sentences from their numbers, (m, 2)."""
    first, second = ([spaces.sentences[i] for i in column] for column in ends.T)
    cosines = (cosines_of(x, ends) for x in (spaces.before, spaces.after))
    return Pairs(first, second, BeforeAfter(*cosines))


def largest_moves(pairs: Pairs, count: int = 20) -> tuple[Move, ...]:
    """Return the pairs whose rank changed most, the largest change first."""
    before, after = (rankdata(-values) for values in (pairs.cosine.before, pairs.cosine.after))
    gold = None if pairs.gold is None else rankdata(-pairs.gold)
    return tuple(
        Move(
            pairs.first[i],
            pairs.second[i],
            BeforeAfter(float(pairs.cosine.before[i]), float(pairs.cosine.after[i])),
            BeforeAfter(float(before[i]), float(after[i])),
            None if pairs.gold is None else float(pairs.gold[i]),
            None if gold is None else float(gold[i]),
        )
        for i in np.argsort(-np.abs(before - after), kind="stable")[:count]
        if before[i] != after[i]
    )


def lexical_view(pairs: Pairs, seed: int) -> LexicalView | None:
    """Compare cosines with edit distance; None where rapidfuzz is not installed."""
    try:
        edits = edit_distances(pairs.first, pairs.second)
    except MissingExtraError:
        return None
    both = (lexical_summary(values, edits, pairs.gold) for values in (pairs.cosine.before, pairs.cosine.after))
    gold = None if pairs.gold is None else lexical_summary(pairs.gold, edits)
    shown = sample_indices(len(pairs), PLOTTED, seed)
    return LexicalView(pairs.take(shown), edits[shown], BeforeAfter(*both), gold)


def joined(one: Pairs, other: Pairs) -> Pairs:
    """Return the pairs of both, without gold."""
    cosines = (np.concatenate([getattr(one.cosine, side), getattr(other.cosine, side)]) for side in ("before", "after"))
    return Pairs(one.first + other.first, one.second + other.second, BeforeAfter(*cosines))


def cosines_of(x: Matrix, ends: npt.NDArray[np.int64]) -> Vector:
    """Cosines (m,) of the rows numbered in ``ends`` (m, 2)."""
    step = 65_536  # rows in memory at once
    parts = [ends[i : i + step] for i in range(0, len(ends), step)]
    return np.concatenate(
        [cosine_of_pairs(*(x[column].astype(np.float64) for column in part.T)).round(12) for part in parts]
    ).astype(np.float64)
