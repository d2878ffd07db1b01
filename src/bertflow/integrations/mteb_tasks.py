"""MTEB's tasks on data that lie here, where they do, else from the hub.

MTEB scores STS tasks over all pairs of a set at once, which is bertflow's setting ``all``: on the same data both give the
same number. MTEB's text is raw and cased: so is a local copy's, where there is such a one.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertflow.errors import InputError, require
from bertflow.evaluation import PairSet, find_data, load_pairs

logger = logging.getLogger(__name__)

# MTEB's tasks that are sets of the paper: our name of the set, and our split for each of MTEB's. SICK-R is judged on all
# three splits together. STSBenchmark.v2 is not among them: which pairs it leaves out is known to the hub alone.
LOCAL: dict[str, tuple[str, dict[str, str]]] = {
    "STSBenchmark": ("STS-B", {"train": "train", "validation": "dev", "test": "test"}),
    "SICK-R": ("SICK-R", {"test": "pooled"}),
    **{f"STS{year}": (f"STS{year}", {"test": "test"}) for year in range(12, 17)},
}


def local_task(name: str, data: str | Path | None = None) -> Any:
    """Return a task of MTEB with its data from a local folder.

    Args:
        name: One of ``LOCAL``, such as ``"STS12"``.
        data: The folder of data sets; see ``bertflow.evaluation.find_data``.
    """
    if name not in LOCAL:
        raise InputError(f"{name} has no local copy; the tasks that may have one are {', '.join(LOCAL)}.")
    folder = find_data(data)
    raw = any((folder / copy).is_dir() for copy in ("sts-raw", "hub"))
    if not raw and name != "SICK-R":
        logger.warning("%s: %s has SentEval's tokenised text only; MTEB's leaderboard takes the raw one.", name, folder)
    ours, splits = LOCAL[name]
    parts = {theirs: load_pairs(ours, folder, raw, split).subsets.values() for theirs, split in splits.items()}
    task = _mteb().get_task(name)
    return _with_data(task, {split: list(pairs) for split, pairs in parts.items()})


def pairs_task(name: str, pairs: PairSet) -> Any:
    """Make a task of MTEB from anyone's graded pairs.

    Args:
        name: What results call it.
        pairs: The pairs, such as ``load_pairs_file(path).subsets["all"]``.
    """
    if pairs.gold.min() == pairs.gold.max():
        raise InputError(
            f"All {len(pairs)} gold scores of {name} are {pairs.gold[0]:g}: where nothing varies, nothing is judged."
        )
    sts = require("mteb.abstasks", "mteb").AbsTaskSTS
    pattern = _mteb().get_task("STS12").metadata
    changes = {
        "name": name,
        "description": f"{len(pairs)} graded pairs of sentences.",
        "dataset": {"path": "local", "revision": ""},
        "reference": None,
        "bibtex_citation": "",
    }
    bounds = {"min_score": float(pairs.gold.min()), "max_score": float(pairs.gold.max())}
    kind = type(sts)("PairsTask", (sts,), {"metadata": pattern.model_copy(update=changes), **bounds})
    return _with_data(kind(), {"test": [pairs]})


def load_tasks(names: Sequence[str], data: str | Path | None = None, *, hub: bool = False) -> list[Any]:
    """Return tasks of MTEB with their data: local ones where they are, else as MTEB fetches them from the hub.

    Args:
        names: MTEB's names; ``"STS-B"`` is understood too.
        data: The folder of data sets; default: where ``bertflow.evaluation.find_data`` finds one.
        hub: Take MTEB's own copies always.
    """
    if not names:
        raise InputError("No task was named; such are STS12, STSBenchmark or SICK-R.")
    return [_load(({"STS-B": "STSBenchmark"}).get(name, name), data, hub) for name in names]


def _mteb() -> Any:
    return require("mteb", "mteb")


def _with_data(task: Any, splits: dict[str, list[PairSet]]) -> Any:
    """Give a task its pairs, and a revision that says that they are not the hub's."""
    datasets = require("datasets", "mteb")
    columns: dict[str, Callable[[PairSet], Any]] = {
        "sentence1": lambda pairs: pairs.sentences1,
        "sentence2": lambda pairs: pairs.sentences2,
        "score": lambda pairs: pairs.gold.tolist(),
    }
    digest, tables = hashlib.sha256(), {}
    for split, parts in splits.items():
        rows = {name: [value for part in parts for value in column(part)] for name, column in columns.items()}
        digest.update(f"{split} {rows}".encode())
        tables[split] = datasets.Dataset.from_dict(rows)
    changes = {"dataset": {**task.metadata.dataset, "revision": f"local-{digest.hexdigest()[:12]}"}}
    task.metadata = task.metadata.model_copy(update=changes)
    task.dataset = datasets.DatasetDict(tables)
    task.data_loaded = True
    return task


def _load(name: str, data: str | Path | None, hub: bool) -> Any:
    missing = ""
    if name in LOCAL and not hub:
        try:
            return local_task(name, data)
        except InputError as error:
            if data is not None:
                raise
            missing = str(error)
    try:
        task = _mteb().get_task(name)
    except KeyError as error:
        raise InputError(f"MTEB has no task {name!r}: {str(error.args[0]).removeprefix('KeyError: ')}") from None
    try:
        with quiet_mteb():
            task.load_data()
    except Exception as error:  # the libraries beneath raise a dozen unrelated kinds when offline
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{name} could not be fetched from the Hugging Face hub ({reason}): check the network"
            + (f". Local data were not found either: {missing}" if missing else ".")
        ) from error
    return task


def task_sentences(task: Any) -> list[str]:
    """Return every different sentence of a loaded STS task, all splits."""
    if task.metadata.type != "STS" or task.metadata.is_multilingual:
        raise InputError(
            f"{task.metadata.name} is no plain STS task, so there is no saying which of its texts to fit on: give a file of "
            "sentences to fit on instead of 'target'."
        )
    splits = task.dataset.values()
    return list(dict.fromkeys(text for rows in splits for column in task.column_names for text in rows[column]))


@contextmanager
def quiet_mteb() -> Iterator[None]:
    """Keep to ourselves what MTEB and the hub's libraries tell every user on every run; errors still come through."""
    datasets = require("datasets", "mteb")
    bars = datasets.are_progress_bars_disabled()
    levels = {name: logging.getLogger(name).level for name in ("mteb", "datasets", "huggingface_hub")}
    datasets.disable_progress_bars()
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*superseded by")
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
