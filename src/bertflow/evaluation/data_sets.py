"""Every data set by its name."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from bertflow.errors import InputError
from bertflow.evaluation.development import DATA_SETS
from bertflow.evaluation.sts import COUNTS, load_sts
from bertflow.evaluation.tasks import PairTask, Task
from bertflow.storage.folders import find_data

TASKS = (*COUNTS, *DATA_SETS)


def load_task(name: str, data: str | Path | None = None, raw: bool = False, split: str = "test") -> Task:
    """Load a data set.

    Args:
        name: One of ``TASKS``.
        data: The folder of data sets; see ``find_data``.
        raw: Of STS: the raw, cased sentences instead of SentEval's, which are tokenised and lower-cased. SICK, QNLI and
            the data sets beside STS exist in one form only.
        split: ``"test"``; for STS-B and SICK-R also ``"train"``, ``"dev"`` and ``"pooled"``, all three together, which
            is how SimCSE and MTEB count SICK-R. The data sets beside STS have one split, whatever its authors call it.

    Returns:
        The task; its ``fit_sentences`` come from all splits. Without SentEval's files the copies that ``download``
        fetched are taken: they have no sub-sets, so only the setting ``all`` can be had.
    """
    if name in COUNTS:
        return load_sts(name, find_data(data), raw, split)
    if name not in DATA_SETS:
        near = get_close_matches(name, TASKS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"There is no task {name!r}; the tasks are {', '.join(TASKS)}.{hint}")
    if split != "test":
        raise InputError(f"{name} has no split {split!r}; it has one only: leave the split out.")
    return DATA_SETS[name].load(find_data(data), name)


def load_pairs(name: str, data: str | Path | None = None, raw: bool = False, split: str = "test") -> PairTask:
    """Load a data set of pairs; arguments as for ``load_task``."""
    task = load_task(name, data, raw, split)
    if not isinstance(task, PairTask):
        raise InputError(f"{name} has no pairs of sentences, which are needed here; such are STS-B, semrel or qqp.")
    return task
