"""Judge any embedding on any task: embed each distinct sentence once, take cosines, score."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bertflow.arrays import Matrix, as_matrix, cosine_of_pairs
from bertflow.errors import InputError
from bertflow.evaluation.pairs import Metric, Task, Vector
from bertflow.evaluation.scores import Score, Setting, score_pairs

Embed: TypeAlias = Callable[[list[str]], Matrix]


def evaluate_task(
    task: Task,
    embed: Embed,
    setting: Setting = "all",
    *,
    metric: Metric | None = None,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Score:
    """Score an embedding on a task.

    Args:
        task: From ``load_task`` or ``load_pairs_file``.
        embed: Maps a list of n sentences to vectors (n, d). It is called once, with every distinct sentence.
        setting: ``"all"``, ``"mean"`` or ``"wmean"``.
        metric: Instead of the task's own.
        resamples: For the confidence interval; 0 gives none.
        seed: For the resamples.
        confidence: Of the interval.
    """
    if task.subsets_lost and setting != "all":
        raise InputError(f"This copy of {task.name} has no sub-sets: use the setting 'all', or SentEval's files.")
    similarities = task_similarities(task, embed)
    return score_pairs(
        similarities,
        task.gold,
        metric or task.metric,
        setting,
        resamples=resamples,
        seed=seed,
        confidence=confidence,
    )


def task_similarities(task: Task, embed: Embed) -> dict[str, Vector]:
    """Cosine of each evaluated pair, (n,) by sub-set: what ``score_pairs`` and ``compare`` take.

    Cosines are taken in float64 and rounded to 12 decimals, so that pairs of identical sentences tie exactly. Float32
    breaks those ties at random; on STS12 (79 such pairs) that was seen to move wmean by 0.03.
    """
    sentences = task.sentences
    vectors = as_matrix(embed(sentences), "embeddings")
    if len(vectors) != len(sentences):
        raise InputError(f"{len(sentences)} sentences gave {len(vectors)} embeddings; one each was expected.")
    row = {sentence: index for index, sentence in enumerate(sentences)}

    def rows(of: list[str]) -> Matrix:
        return vectors[[row[sentence] for sentence in of]].astype(np.float64)

    return {
        name: cosine_of_pairs(rows(pairs.sentences1), rows(pairs.sentences2)).round(12).astype(np.float64)
        for name, pairs in task.subsets.items()
    }
