"""What many texts tell: how much a cosine means, duplicates, groups, novelty and drift."""

from bertflow.corpus.clusters import Clusters, Group, find_clusters
from bertflow.corpus.drift import Drift, find_drift
from bertflow.corpus.duplicates import Duplicates, Pair, find_duplicates
from bertflow.corpus.laws import Law
from bertflow.corpus.novelty import Outlier, Outliers, find_outliers
from bertflow.corpus.significance import Explanation, Significance
from bertflow.corpus.words import telling_words

__all__ = [
    "Clusters",
    "Drift",
    "Duplicates",
    "Explanation",
    "Group",
    "Law",
    "Outlier",
    "Outliers",
    "Pair",
    "Significance",
    "find_clusters",
    "find_drift",
    "find_duplicates",
    "find_outliers",
    "telling_words",
]
