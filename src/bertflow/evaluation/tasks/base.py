"""The contract of every task: texts without labels to fit on, and a score for whatever maps texts to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from bertflow.arrays import Matrix, as_matrix
from bertflow.errors import InputError
from bertflow.evaluation.scores import Score

Encode: TypeAlias = Callable[[list[str]], Any]


class Task(ABC):
    """Something that sentence vectors are used for, with labels that say how well they serve.

    A new kind of task is a subclass in a file of its own, and a line in ``bertflow.evaluation.tasks.KINDS``.

    Attributes:
        name: Such as ``"STS-B"``.
        metric: One of ``metrics``, which the score is.
        fit_sentences: All its texts without labels, each once: what a recipe may be fitted on.
        metrics: What the kind can be judged by, the default first.
        files: Names of the files or columns that a user's own task of this kind is read from: see ``load_own``.
    """

    name: str
    metric: str
    fit_sentences: list[str]
    metrics: ClassVar[tuple[str, ...]]
    files: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def sentences(self) -> list[str]:
        """The distinct texts that are encoded to be judged."""

    @abstractmethod
    def score(self, encode: Encode, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95) -> Score:
        """Judge vectors.

        Args:
            encode: Maps a list of n texts to vectors (n, d). It is called once, with every distinct text.
            resamples: For the confidence interval and for ``difference``; 0 gives neither.
            seed: For the resamples: equal seeds pair the scores of two methods.
            confidence: Of the interval.
        """

    @abstractmethod
    def judged_by(self, metric: str | None = None, setting: str | None = None) -> Task:
        """Return the same task with another metric or another way of joining sub-sets, where it has such.

        Args:
            metric: One of ``metrics``.
            setting: ``"all"``, ``"mean"`` or ``"wmean"``; a task without sub-sets stays as it is.
        """

    @classmethod
    @abstractmethod
    def load(cls, **files: Any) -> Task:
        """Read a user's own task from what ``files`` names."""

    def check_metric(self, metric: str | None) -> None:
        """Refuse a metric that is not one of this kind's."""
        if metric is not None and metric not in self.metrics:
            raise InputError(
                f"{self.name} has no metric {metric!r}; a task of this kind is judged by {', '.join(self.metrics)}."
            )


def encode_once(encode: Encode, texts: Sequence[str]) -> Callable[[Sequence[str]], Matrix]:
    """Encode each distinct text once, checked; return what maps any of them to their vectors (n, d)."""
    distinct = list(dict.fromkeys(texts))
    vectors = as_matrix(encode(distinct), "embeddings")
    if len(vectors) != len(distinct):
        raise InputError(f"{len(distinct)} sentences gave {len(vectors)} embeddings; one each was expected.")
    row = {text: number for number, text in enumerate(distinct)}
    return lambda wanted: vectors[np.fromiter((row[text] for text in wanted), dtype=np.int64, count=len(wanted))]
