"""Pairs of sentences: do cosines order them as people do (graded), or tell like from unlike (0 and 1)?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

import numpy as np

from bertflow.arrays import cosine_of_pairs
from bertflow.errors import InputError
from bertflow.evaluation.pair_scores import score_pairs
from bertflow.evaluation.pairs import Metric, PairSet, distinct, read_pairs
from bertflow.evaluation.scores import Score, Setting, Vector
from bertflow.evaluation.tasks.base import Encode, Task, encode_once


@dataclass(frozen=True, eq=False)
class PairTask(Task):
    """Pairs that count, and the sentences that may be seen without labels.

    Args:
        name: Such as ``"STS-B"``.
        metric: ``"spearman"`` or ``"pearson"`` for graded scores, ``"auc"`` for 0 and 1.
        subsets: The evaluated pairs by sub-set; a task without sub-sets has the one named ``"all"``.
        fit_sentences: Every distinct sentence of train, dev and test: what the paper's "target" setting fits on.
        subsets_lost: The data set has sub-sets, but this copy does not say which pair is in which, so that the
            settings ``mean`` and ``wmean`` would be wrong.
        setting: How the sub-sets' scores are joined.
    """

    metrics: ClassVar[tuple[str, ...]] = get_args(Metric)
    files: ClassVar[tuple[str, ...]] = ("pairs",)

    name: str
    metric: Metric
    subsets: dict[str, PairSet]
    fit_sentences: list[str]
    subsets_lost: bool = False
    setting: Setting = "all"

    @classmethod
    def load(cls, **files: Any) -> PairTask:
        """Read ``pairs``, a file: see ``load_pairs_file``."""
        return load_pairs_file(files["pairs"])

    @property
    def gold(self) -> dict[str, Vector]:
        """The gold scores by sub-set."""
        return {name: pairs.gold for name, pairs in self.subsets.items()}

    @property
    def sentences(self) -> list[str]:
        """The distinct sentences of the evaluated pairs."""
        return distinct(self.subsets.values())

    def judged_by(self, metric: str | None = None, setting: str | None = None) -> PairTask:
        """Return the same pairs with another metric or setting; without known sub-sets the setting is ``"all"``."""
        self.check_metric(metric)
        if setting is not None and setting not in get_args(Setting):
            raise InputError(f"There is no setting {setting!r}; use one of {', '.join(get_args(Setting))}.")
        pooled = self.subsets_lost or len(self.subsets) == 1
        changes = {"metric": metric or self.metric, "setting": "all" if pooled else setting or self.setting}
        return replace(self, **cast(Any, changes))

    def score(self, encode: Encode, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95) -> Score:
        """Judge the cosines of the pairs; the resamples are of pairs."""
        similarities = task_similarities(self, encode)
        options = {"resamples": resamples, "seed": seed, "confidence": confidence}
        return score_pairs(similarities, self.gold, self.metric, self.setting, **cast(Any, options))


def load_pairs_file(path: str | Path) -> PairTask:
    """Load a file of pairs as a task of its own.

    Args:
        path: A ``.tsv``, ``.csv``, ``.jsonl`` or ``.parquet`` file with two columns of sentences (``sentence1`` and
            ``sentence2``, or another name of ``SENTENCE1`` and ``SENTENCE2``) and either a graded ``score`` (judged by
            Spearman) or a 0/1 ``label`` (judged by AUC). A ``.tsv`` without header is read as sentence, sentence,
            score when its first line has three columns of which the last is a number.
    """
    pairs, metric = read_pairs(path)
    return PairTask(Path(path).stem, metric, {"all": pairs}, distinct([pairs]))


def task_similarities(task: PairTask, encode: Encode) -> dict[str, Vector]:
    """Cosine of each evaluated pair, (n,) by sub-set: what ``score_pairs`` and ``compare`` take.

    Cosines are taken in float64 and rounded to 12 decimals, so that pairs of identical sentences tie exactly. Float32
    breaks those ties at random; on STS12 (79 such pairs) that was seen to move wmean by 0.03.
    """
    rows = encode_once(encode, task.sentences)
    return {
        name: cosine_of_pairs(rows(pairs.sentences1).astype(np.float64), rows(pairs.sentences2).astype(np.float64))
        .round(12)
        .astype(np.float64)
        for name, pairs in task.subsets.items()
    }


def evaluate_task(
    task: Task, encode: Encode, setting: Setting = "all", *, metric: str | None = None, **options: Any
) -> Score:
    """Score an embedding on a task of any kind.

    Args:
        task: From ``load_task``, ``load_pairs_file``, ``load_search`` or ``load_clusters``.
        encode: Maps a list of n texts to vectors (n, d). It is called once, with every distinct text.
        setting: ``"all"``, ``"mean"`` or ``"wmean"``, where the task has sub-sets.
        metric: Instead of the task's own.
        options: ``resamples``, ``seed`` and ``confidence`` of ``task.score``.
    """
    if isinstance(task, PairTask) and task.subsets_lost and setting != "all":
        raise InputError(f"This copy of {task.name} has no sub-sets: use the setting 'all', or SentEval's files.")
    return task.judged_by(metric, setting).score(encode, **options)
