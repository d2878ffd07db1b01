"""The data sets of the paper, from SentEval's files, the raw files or the hub's copies, counts checked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bertflow.errors import InputError
from bertflow.evaluation.pairs import PairSet, distinct, read_pairs
from bertflow.evaluation.senteval import read_headed_pairs, read_sts_benchmark, read_sts_subset
from bertflow.evaluation.tasks import PairTask

logger = logging.getLogger(__name__)

# Pairs with gold, by task, split and sub-set. QNLI's labelled dev set stands in for its test set, as in the paper.
COUNTS: dict[str, dict[str, dict[str, int]]] = {
    "STS-B": {"train": {"all": 5749}, "dev": {"all": 1500}, "test": {"all": 1379}},
    "SICK-R": {"train": {"all": 4500}, "dev": {"all": 500}, "test": {"all": 4927}},
    "STS12": {
        "test": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399}
    },
    "STS13": {"test": {"FNWN": 189, "headlines": 750, "OnWN": 561}},
    "STS14": {
        "test": {
            "deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750
        }
    },
    "STS15": {
        "test": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750}
    },
    "STS16": {
        "test": {
            "answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209
        }
    },
    "QNLI": {"test": {"all": 5463}},
}  # fmt: skip
_SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


def load_sts(name: str, data: Path, raw: bool = False, split: str = "test") -> PairTask:
    """Load a data set of the paper, one of ``COUNTS``, from the folder of data sets; see ``load_task``."""
    allowed = [*COUNTS[name], "pooled"] if len(COUNTS[name]) > 1 else list(COUNTS[name])
    if split not in allowed:
        raise InputError(f"{name} has no split {split!r}; it has {', '.join(allowed)}.")
    splits = _load_splits(name, data, raw)
    if split not in splits and split != "pooled":
        raise InputError(
            f"The hub's copy of {name} does not say which pairs are {split}: use split='pooled', or SentEval's files."
        )
    subsets = _pool(splits) if split == "pooled" else splits[split]
    everything = distinct(pairs for parts in splits.values() for pairs in parts.values())
    lost = len(subsets) < len(COUNTS[name]["test"])
    return PairTask(name, "auc" if name == "QNLI" else "spearman", subsets, everything, subsets_lost=lost)


def hub_file(data: Path, name: str, split: str) -> Path:
    """Where ``download`` puts a split, and ``load_task`` looks for it."""
    return data / "hub" / name / f"{split}.jsonl"


def _load_splits(name: str, data: Path, raw: bool) -> dict[str, dict[str, PairSet]]:
    """Load every split, by sub-set, from the first source that is there."""
    folders = _folders(name, data, raw)
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        return _load_hub_splits(name, data, raw)
    return {
        split: {subset: _load_part(name, folder, split, subset) for subset in subsets}
        for split, subsets in COUNTS[name].items()
    }


def _folders(name: str, data: Path, raw: bool) -> list[Path]:
    """Where a task may lie, best first."""
    if name == "QNLI":
        return [data / "qnli", data / "QNLI"]
    bases = [data / "senteval" / "downstream", data / "downstream", data]
    if name == "SICK-R":
        return [base / "SICK" for base in bases]
    folder = "STSBenchmark" if name == "STS-B" else f"{name}-en-test"
    return [data / "sts-raw" / folder] if raw else [base / "STS" / folder for base in bases]


def _load_part(name: str, folder: Path, split: str, subset: str) -> PairSet:
    """Load one file of the original layouts."""
    read: Callable[[Path], PairSet]
    if name == "STS-B":
        path, read = folder / f"sts-{split}.csv", read_sts_benchmark
    elif name == "SICK-R":
        path, read = folder / _SICK_FILES[split], read_headed_pairs
    elif name == "QNLI":
        path, read = folder / "dev.tsv", read_headed_pairs
    else:
        path, read = folder / f"STS.input.{subset}.txt", read_sts_subset
    return check_count(path, read(path), COUNTS[name][split][subset])


def _load_hub_splits(name: str, data: Path, raw: bool) -> dict[str, dict[str, PairSet]]:
    """Load what ``download`` wrote: one file a split, no sub-sets."""
    sizes = {split: sum(subsets.values()) for split, subsets in COUNTS[name].items()}
    if hub_file(data, name, "pooled").is_file():
        sizes = {"pooled": sum(sizes.values())}
    if not any(hub_file(data, name, split).is_file() for split in sizes):
        raise InputError(
            f"{name} is not in {data}: run  bertflow data get , or put it at {_folders(name, data, raw)[0]}."
        )
    if not raw and name not in ("SICK-R", "QNLI"):
        logger.warning("%s: SentEval's files are absent; the hub's copy, raw and without sub-sets, is taken.", name)
    paths = {split: hub_file(data, name, split) for split in sizes}
    return {split: {"all": check_count(path, read_pairs(path)[0], sizes[split])} for split, path in paths.items()}


def check_count(path: Path | str, pairs: PairSet, expected: int) -> PairSet:
    """Return the pairs if they are as many as the data set is known to have."""
    if len(pairs) != expected:
        raise InputError(f"{path} has {len(pairs)} pair(s) with gold; the data set has {expected}: get a whole copy.")
    return pairs


def _pool(splits: dict[str, dict[str, PairSet]]) -> dict[str, PairSet]:
    parts = [pairs for subsets in splits.values() for pairs in subsets.values()]
    firsts = [sentence for pairs in parts for sentence in pairs.sentences1]
    seconds = [sentence for pairs in parts for sentence in pairs.sentences2]
    return {"all": PairSet(firsts, seconds, np.concatenate([pairs.gold for pairs in parts]))}
