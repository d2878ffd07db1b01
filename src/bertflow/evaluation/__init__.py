"""Judge sentence embeddings, ours or anyone's: data sets, scores with intervals, and a cache of embeddings.

Fetching data sets is ``bertflow.evaluation.download.download``, not listed here because it would hide its module.
"""

from bertflow.evaluation.evaluate import evaluate_task, task_similarities
from bertflow.evaluation.pairs import PairSet, Task, load_pairs_file
from bertflow.evaluation.scores import Comparison, Score, compare, metric_value, score_pairs
from bertflow.evaluation.search import SearchScore, score_search
from bertflow.evaluation.tasks import TASKS, load_task
from bertflow.storage.folders import cache_folder, find_data
from bertflow.storage.vector_cache import CachedEncoder

__all__ = [
    "TASKS",
    "CachedEncoder",
    "Comparison",
    "PairSet",
    "Score",
    "SearchScore",
    "Task",
    "cache_folder",
    "compare",
    "evaluate_task",
    "find_data",
    "load_pairs_file",
    "load_task",
    "metric_value",
    "score_pairs",
    "score_search",
    "task_similarities",
]
