"""With labels: choose a recipe on some folds, tell the gain on the others.

The recipes saw texts but no labels, so nothing is fitted in a fold; only the *choice* among them uses labels, and the best of
several flatters itself. Hence the gain of each fold is that of what the other folds chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError
from bertflow.evaluation.pairs import PairSet
from bertflow.evaluation.scores import Score, difference, interval
from bertflow.evaluation.tasks import ClusterTask, Encode, PairTask, SearchTask, Task

FOLDS = 5
FEWEST = 50  # ten a fold; a correlation over fewer says nothing
FEWEST_QUERIES = 20
INNER_RESAMPLES, RESAMPLES = 200, 1000
CONFIDENCE = 0.95

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """What labels say.

    Args:
        choice: What all of them together choose.
        gain: Of what the other folds chose over raw vectors, on each fold's own labels, ×100; with its interval.
        picks: How many folds chose what.
        scores: Each recipe's score on all labels.
    """

    choice: str
    gain: tuple[float, float, float]
    picks: dict[str, int]
    scores: dict[str, Score]


def measure(task: Task, encodes: Mapping[str, Encode], raw: str, seed: int = 0) -> Measured:
    """Choose a recipe by labels and tell honestly what it gains.

    Args:
        task: The labels.
        encodes: What encodes by each recipe; called often, so it should look up vectors that are there.
        raw: The recipe that gains are counted from; it is kept unless another is significantly better.
        seed: Deals the folds and seeds the resamples.
    """
    task = one_task(task)
    fold = deal(strata_of(task), seed)
    picks, value, draws = Counter[str](), 0.0, np.zeros(INNER_RESAMPLES)
    for number in range(FOLDS):
        pick = choose(part_of(task, np.flatnonzero(fold != number)), encodes, raw, seed)
        held, share = part_of(task, np.flatnonzero(fold == number)), float((fold == number).mean())
        first, second = (held.score(encodes[name], resamples=INNER_RESAMPLES, seed=seed) for name in (pick, raw))
        picks[pick] += 1
        value += share * (first.value - second.value)
        draws += share * np.nan_to_num(_draws(first) - _draws(second))
    scores = {name: task.score(encode, resamples=RESAMPLES, seed=seed) for name, encode in encodes.items()}
    return Measured(choose_by_scores(scores, raw), (value, *interval(draws, CONFIDENCE)), dict(picks), scores)


def choose(task: Task, encodes: Mapping[str, Encode], raw: str, seed: int) -> str:
    """The best recipe, if its lead over raw vectors is significant (95 %, paired bootstrap); else raw."""
    scores = {
        name: task.score(encode, resamples=INNER_RESAMPLES, seed=seed, confidence=CONFIDENCE)
        for name, encode in encodes.items()
    }
    return choose_by_scores(scores, raw)


def choose_by_scores(scores: Mapping[str, Score], raw: str) -> str:
    """The best recipe by scores with resamples, if its lead over raw vectors is significant; else raw."""
    best = max(scores, key=lambda name: scores[name].value)
    return best if best != raw and difference(scores[best], scores[raw]).low > 0 else raw


def _draws(score: Score) -> Any:
    return score.draws


def deal(strata: npt.NDArray[Any], seed: int) -> Rows:
    """Number each unit's fold (n,), so that every fold has low and high strata alike."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(strata)), strata))
    fold = np.empty(len(strata), dtype=np.int64)
    rounds = -(-len(strata) // FOLDS)
    fold[order] = np.concatenate([rng.permutation(FOLDS) for _ in range(rounds)])[: len(strata)]
    return fold


def too_few(task: Task) -> str | None:
    """Say why labels can tell nothing, in a sentence; None where they can."""
    task = one_task(task)
    strata = strata_of(task)
    fewest, unit = (FEWEST_QUERIES, "queries") if isinstance(task, SearchTask) else (FEWEST, "labels")
    if len(strata) < fewest:
        return f"{len(strata)} {unit} came; {fewest} or more are needed to measure anything, better some hundred."
    counts = np.unique(strata, return_counts=True)[1]
    if isinstance(task, PairTask) and len(counts) == 1:
        return f"All {len(strata)} pairs have one score: they cannot tell good from bad."
    if isinstance(task, PairTask) and task.metric == "auc" and counts.min() < FOLDS:
        return f"Of one of the labels 0 and 1 there are only {counts.min()} pairs; {FOLDS} or more are needed."
    return None


@singledispatch
def strata_of(task: Task) -> npt.NDArray[Any]:
    """What the folds should have alike: a number for each labelled unit (n,)."""
    raise InputError(f"Labels of the kind {type(task).__name__} cannot be dealt to folds.")


@singledispatch
def part_of(task: Task, rows: Rows) -> Task:
    """Return the task with some of its labelled units."""
    raise InputError(f"Labels of the kind {type(task).__name__} cannot be dealt to folds.")


@strata_of.register
def _(task: PairTask) -> npt.NDArray[Any]:
    return np.concatenate(list(task.gold.values()))


@strata_of.register
def _(task: SearchTask) -> npt.NDArray[Any]:
    return np.zeros(len(task.judged))


@strata_of.register
def _(task: ClusterTask) -> npt.NDArray[Any]:
    return np.unique(np.asarray(task.labels), return_inverse=True)[1].ravel()


@part_of.register
def _(task: PairTask, rows: Rows) -> PairTask:
    (pairs,) = task.subsets.values()
    some = PairSet([pairs.sentences1[i] for i in rows], [pairs.sentences2[i] for i in rows], pairs.gold[rows])
    return replace(task, subsets={"all": some}, fit_sentences=[])


@part_of.register
def _(task: SearchTask, rows: Rows) -> SearchTask:
    return replace(task, relevant={query: task.relevant[query] for query in (task.judged[row] for row in rows)})


@part_of.register
def _(task: ClusterTask, rows: Rows) -> ClusterTask:
    texts, labels = [task.texts[row] for row in rows], [task.labels[row] for row in rows]
    return replace(task, texts=texts, labels=labels, seeds=task.seeds[:1])


def one_task(task: Task) -> Task:
    """Return pairs of several sub-sets as one set; other tasks as they are."""
    if not isinstance(task, PairTask) or len(task.subsets) == 1:
        return task
    sets = list(task.subsets.values())
    joined = PairSet(
        [text for pairs in sets for text in pairs.sentences1],
        [text for pairs in sets for text in pairs.sentences2],
        np.concatenate([pairs.gold for pairs in sets]),
    )
    return replace(task, subsets={"all": joined}, setting="all")
