"""Fetch the data sets from the Hugging Face hub, for those who have no SentEval at hand.

The hub's copies are raw text without sub-sets, so that only the setting ``all`` can be had from them; ``mean`` and
``wmean``, which the paper reports on STS12–16, need SentEval's files. The hub's SICK-R has train, dev and test in one
list without marks: it gives the split ``pooled`` only, which is what SimCSE and MTEB report.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertflow.errors import InputError, require
from bertflow.evaluation.sts import COUNTS, hub_file
from bertflow.storage.atomic import atomic_file
from bertflow.storage.folders import cache_folder

logger = logging.getLogger(__name__)

_REPOSITORIES = {
    "STS-B": "mteb/stsbenchmark-sts",
    "SICK-R": "mteb/sickr-sts",
    **{f"STS{year}": f"mteb/sts{year}-sts" for year in range(12, 17)},
}
_QNLI_ENTAILMENT = 0  # the hub numbers GLUE's classes the other way round: 0 is entailment


def download(folder: str | Path | None = None, names: Sequence[str] = tuple(COUNTS)) -> Path:
    """Fetch data sets and write them where ``load_task`` finds them.

    Args:
        folder: The folder of data sets, made if need be; by default the one in the cache that ``find_data`` knows.
        names: Which of the data sets of the paper: the seven STS sets and QNLI.

    Returns:
        The folder, to be given to ``load_task`` or set as ``BERTFLOW_DATA``.
    """
    unknown = [name for name in names if name not in COUNTS]
    if unknown:
        raise InputError(f"There is no task {unknown[0]!r} to fetch; the tasks are {', '.join(COUNTS)}.")
    folder = cache_folder() / "data" if folder is None else Path(folder)
    for name in names:
        # all splits of a task are fetched before one is written: half a task is of no use
        fetched = {split: _fetch(name, split) for split in _splits(name)}
        for split, pairs in fetched.items():
            with atomic_file(hub_file(folder, name, split)) as path:
                path.write_text(
                    "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8"
                )
            logger.info("%s: %d %s pairs, without sub-sets (setting 'all' only).", name, len(pairs), split)
    return folder


def _splits(name: str) -> dict[str, int]:
    """The splits that the hub has of a task, under our names, and their pairs."""
    sizes = {split: sum(subsets.values()) for split, subsets in COUNTS[name].items()}
    return {"pooled": sum(sizes.values())} if name == "SICK-R" else sizes


def _fetch(name: str, split: str) -> list[dict[str, Any]]:
    """Fetch one split and check that it is whole."""
    datasets = require("datasets", extra="data")
    hub_split = {"dev": "validation", "pooled": "test"}.get(split, split)
    where = ("nyu-mll/glue", "qnli") if name == "QNLI" else (_REPOSITORIES[name],)
    try:
        rows = datasets.load_dataset(*where, split="validation" if name == "QNLI" else hub_split)
        pairs = [_pair(name, row) for row in rows]
    except Exception as error:  # the libraries beneath raise a dozen unrelated kinds when offline
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"{name} could not be fetched from the Hugging Face hub ({where[0]}; {reason}): check the network, or copy"
            " SentEval's data folder here and set BERTFLOW_DATA to it."
        ) from error
    if len(pairs) != _splits(name)[split]:
        raise InputError(
            f"{where[0]}, split {hub_split}, has {len(pairs)} pairs; {_splits(name)[split]} were expected."
        )
    return pairs


def _pair(name: str, row: dict[str, Any]) -> dict[str, Any]:
    if name == "QNLI":
        label = int(row["label"] == _QNLI_ENTAILMENT)
        return {"sentence1": row["question"], "sentence2": row["sentence"], "label": label}
    return {column: row[column] for column in ("sentence1", "sentence2", "score")}
