"""Clusters: do texts of one label fall into one cluster, where nobody says what the labels are?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix, unit_rows
from bertflow.errors import InputError
from bertflow.evaluation.bootstrap import resampled
from bertflow.evaluation.scores import Score, Vector, with_interval
from bertflow.evaluation.tasks.base import Encode, Task, encode_once
from bertflow.storage.text_files import place, read_table

Numbers = npt.NDArray[np.int64]
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, eq=False)
class ClusterTask(Task):
    """Texts with labels: KMeans with as many clusters as there are labels, judged by V-measure, averaged over seeds.

    Args:
        name: Such as ``"banking77"``.
        texts: n texts.
        labels: The label of each.
        seeds: Of KMeans; the score is the mean over them.
        metric: ``"v-measure"``.
    """

    metrics: ClassVar[tuple[str, ...]] = ("v-measure",)
    files: ClassVar[tuple[str, ...]] = ("texts", "labels")

    name: str
    texts: Sequence[str]
    labels: Sequence[str]
    seeds: tuple[int, ...] = SEEDS
    metric: str = "v-measure"

    def __post_init__(self) -> None:
        self.check_metric(self.metric)
        if len(self.texts) != len(self.labels) or not self.seeds:
            raise InputError(
                f"{len(self.texts)} texts came with {len(self.labels)} labels and {len(self.seeds)} seeds; each text needs a"
                " label, and KMeans one seed at least."
            )
        kinds = len(set(self.labels))
        if not 2 <= kinds < len(self.texts):
            raise InputError(
                f"{self.name} has {len(self.texts)} text(s) with {kinds} different label(s); at least 2 labels are needed,"
                " and more texts than labels."
            )

    @classmethod
    def load(cls, **files: Any) -> ClusterTask:
        """Read ``texts``, a table, whose column ``labels`` says which text belongs where."""
        return load_clusters(files["texts"], files["labels"])

    @cached_property
    def fit_sentences(self) -> list[str]:  # type: ignore[override]
        """The distinct texts."""
        return list(dict.fromkeys(self.texts))

    @property
    def sentences(self) -> list[str]:
        """The distinct texts."""
        return self.fit_sentences

    def judged_by(self, metric: str | None = None, setting: str | None = None) -> ClusterTask:
        """Return the task itself: there is one metric, and there are no sub-sets."""
        self.check_metric(metric)
        return self

    def score(self, encode: Encode, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95) -> Score:
        """Cluster unit vectors and judge the clusters.

        The resamples are of texts, whose clusters stay as they are, and of KMeans' runs: their luck is part of the interval.
        """
        vectors = unit_rows(encode_once(encode, self.texts)(self.texts))
        labels = np.unique(np.asarray(self.labels), return_inverse=True)[1].ravel()
        found = np.array([_clusters(vectors, int(labels.max()) + 1, kmeans_seed) for kmeans_seed in self.seeds])
        measures = [_v_measure(labels, clusters) for clusters in found]
        values = np.array([100 * float(measure(np.ones((1, len(labels))))[0]) for measure in measures])
        draws = None
        if resamples > 0:
            each = np.array([100 * resampled(measure, len(labels), resamples, seed) for measure in measures])
            each += (values - each.mean(axis=1))[:, None]  # repeated texts lift a V-measure by points
            runs = np.random.default_rng(seed).multinomial(len(each), np.full(len(each), 1 / len(each)), resamples)
            draws = np.einsum("bs,sb->b", runs / len(each), each)
        return Score(
            float(values.mean()),
            setting="all",
            metric=self.metric,
            size=len(labels),
            per_subset={},
            unit="texts",
            units=found,
            **with_interval(draws, confidence),
        )


def load_clusters(path: str | Path, labels: str, texts: str | None = None, name: str | None = None) -> ClusterTask:
    """Load a table of texts with labels.

    Args:
        path: A ``.tsv``, ``.csv``, ``.jsonl`` or ``.parquet`` file.
        labels: Its column of labels.
        texts: Its column of texts; default: ``sentence``, then ``text``.
        name: Of the task; default: the file's.
    """
    found: list[tuple[str, str]] = []
    for number, row in read_table(path):
        where = place(path, number)
        column = texts or next((known for known in ("sentence", "text") if known in row), "text")
        missing = next((wanted for wanted in (column, labels) if wanted not in row), None)
        if missing:
            raise InputError(f"{where} has no column {missing!r}; it has: {', '.join(row)}. Name one of them.")
        text, label = row[column], row[labels]
        if not isinstance(text, str) or not text.strip() or label is None or not str(label).strip():
            raise InputError(f"{where} has the text {text!r:.60} and the label {label!r:.60}; both must be there.")
        found.append((text.strip(), str(label).strip()))
    if not found:
        raise InputError(f"{path} holds no texts.")
    return ClusterTask(name or Path(path).stem, [text for text, _ in found], [label for _, label in found])


def _clusters(vectors: Matrix, k: int, seed: int) -> Numbers:
    """Return the cluster of each row (n,)."""
    from sklearn.cluster import KMeans  # a second of import that pairs do not need

    return KMeans(k, n_init=1, random_state=seed).fit_predict(vectors).astype(np.int64)


def _v_measure(labels: Numbers, clusters: Numbers) -> Callable[[Vector], Vector]:
    """Prepare the V-measure for many resamples: counts (b, n) to values (b,). It is 2 I(L; C) / (H(L) + H(C))."""
    sorted_groups = []
    for group in (labels * (clusters.max() + 1) + clusters, labels, clusters):
        order = np.argsort(group, kind="stable")
        sorted_groups.append((order, np.flatnonzero(np.diff(group[order], prepend=-1))))

    def measure(counts: Vector) -> Vector:
        joint, of_labels, of_clusters = (
            _entropy(np.add.reduceat(counts[:, order], starts, axis=1)) for order, starts in sorted_groups
        )
        both = of_labels + of_clusters
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(both > 0, 2 * (both - joint) / both, 1.0)

    return measure


def _entropy(sizes: Vector) -> Vector:
    """Entropy (b,) of groups of the given sizes (b, k)."""
    total = sizes.sum(axis=1)
    logs = np.log(sizes, where=sizes > 0, out=np.zeros_like(sizes))
    return np.log(total) - (sizes * logs).sum(axis=1) / total
