"""Judge sentence embeddings, ours or anyone's: tasks and data sets, scores with intervals, and a cache of embeddings.

Fetching data sets is ``bertflow.evaluation.download.download``, not listed here because it would hide its module.
"""

from bertflow.evaluation.data_sets import TASKS, load_pairs, load_task
from bertflow.evaluation.pair_scores import compare, metric_value, score_pairs
from bertflow.evaluation.pairs import PairSet
from bertflow.evaluation.scores import Comparison, Score, difference
from bertflow.evaluation.search import SearchScore, score_search
from bertflow.evaluation.tasks import (
    KINDS,
    ClusterTask,
    PairTask,
    SearchTask,
    Task,
    evaluate_task,
    load_clusters,
    load_own,
    load_pairs_file,
    load_search,
    task_similarities,
)
from bertflow.storage.folders import cache_folder, find_data
from bertflow.storage.vector_cache import CachedEncoder

__all__ = [
    "KINDS",
    "TASKS",
    "CachedEncoder",
    "ClusterTask",
    "Comparison",
    "PairSet",
    "PairTask",
    "Score",
    "SearchScore",
    "SearchTask",
    "Task",
    "cache_folder",
    "compare",
    "difference",
    "evaluate_task",
    "find_data",
    "load_clusters",
    "load_own",
    "load_pairs",
    "load_pairs_file",
    "load_search",
    "load_task",
    "metric_value",
    "score_pairs",
    "score_search",
    "task_similarities",
]
