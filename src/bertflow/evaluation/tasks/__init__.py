"""What sentence vectors are used for, a file a kind: pairs, search, clusters. ``KINDS`` is where a kind is registered."""

from __future__ import annotations

from typing import Any

from bertflow.errors import InputError
from bertflow.evaluation.tasks.base import Encode, Task
from bertflow.evaluation.tasks.clusters import ClusterTask, load_clusters
from bertflow.evaluation.tasks.pairs import PairTask, evaluate_task, load_pairs_file, task_similarities
from bertflow.evaluation.tasks.search import SearchTask, load_search

KINDS: dict[str, type[Task]] = {"pairs": PairTask, "search": SearchTask, "clusters": ClusterTask}


def load_own(**files: Any) -> list[Task]:
    """Load a user's own tasks: one of each kind whose files were given.

    Args:
        files: By the names that the kinds have for them: ``pairs``; ``queries``, ``corpus`` and ``qrels``; ``texts`` and
            ``labels``. None counts as not given.
    """
    given = {name: file for name, file in files.items() if file is not None}
    found = []
    for kind, task in KINDS.items():
        missing = [name for name in task.files if name not in given]
        if len(missing) == len(task.files):
            continue
        if missing:
            wanted = ", ".join(f"--{name}" for name in task.files)
            raise InputError(f"Your own {kind} need {wanted}; --{missing[0]} is missing.")
        found.append(task.load(**{name: given.pop(name) for name in task.files}))
    if given:
        raise InputError(f"No kind of task is read from {', '.join(given)}; the kinds are {', '.join(KINDS)}.")
    return found


__all__ = [
    "KINDS",
    "ClusterTask",
    "Encode",
    "PairTask",
    "SearchTask",
    "Task",
    "evaluate_task",
    "load_clusters",
    "load_own",
    "load_pairs_file",
    "load_search",
    "task_similarities",
]
