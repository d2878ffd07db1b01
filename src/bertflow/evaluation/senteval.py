"""Readers for the files of SentEval and GLUE as their authors distribute them, tokenised or raw."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from bertflow.errors import InputError
from bertflow.evaluation.pairs import PairSet, collect_pairs, parse_score, parse_sentence
from bertflow.storage.text_files import place, read_lines, read_tsv

logger = logging.getLogger(__name__)


def read_sts_subset(path: Path) -> PairSet:
    """Read one sub-set of STS12–16: ``STS.input.X.txt`` and the gold scores in ``STS.gs.X.txt`` beside it.

    Organisers scored only some pairs; those with an empty gold line are left out, as everybody does.
    """
    gold_path = path.with_name(path.name.replace("STS.input.", "STS.gs."))
    lines, scores = list(read_lines(path)), list(read_lines(gold_path))
    if len(lines) != len(scores):
        raise InputError(f"{path} has {len(lines)} line(s), but {gold_path.name} beside it has {len(scores)}.")
    firsts, seconds, gold = [], [], []
    for (number, line), (_, score) in zip(lines, scores, strict=True):
        cells = _cells(place(path, number), line, (2, 4))  # 4: the raw files of 2016 name their sources
        if score.strip():
            firsts.append(parse_sentence(place(path, number), cells[0]))
            seconds.append(parse_sentence(place(path, number), cells[1]))
            gold.append(parse_score(place(gold_path, number), score))
    logger.info("%s: %d of %d pairs have gold.", path, len(gold), len(lines))
    return PairSet(firsts, seconds, np.array(gold))


def read_sts_benchmark(path: Path) -> PairSet:
    """Read a ``sts-*.csv``: in truth tab-separated and unquoted, the score in column 5, the sentences in 6 and 7."""
    firsts, seconds, gold = [], [], []
    for number, line in read_lines(path):
        where = place(path, number)
        cells = _cells(where, line, (7, 9))  # 9: some lines of the raw files name their sources
        firsts.append(parse_sentence(where, cells[5]))
        seconds.append(parse_sentence(where, cells[6]))
        gold.append(parse_score(where, cells[4]))
    return PairSet(firsts, seconds, np.array(gold))


def read_headed_pairs(path: Path) -> PairSet:
    """Read SICK or QNLI: tab-separated, unquoted, with a header whose names ``pairs`` knows."""
    return collect_pairs(path, read_tsv(path))[0]


def _cells(where: str, line: str, allowed: tuple[int, ...]) -> list[str]:
    cells = line.split("\t")
    if len(cells) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise InputError(f"{where} has {len(cells)} tab-separated column(s); {wanted} were expected.")
    return cells
