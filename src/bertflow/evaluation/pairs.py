"""Pairs of sentences with gold scores, and the reader for anyone's own file of pairs."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from bertflow.errors import InputError
from bertflow.evaluation.scores import Vector
from bertflow.storage.text_files import Row, listed, place, read_lines, read_table, read_tsv

Metric: TypeAlias = Literal["spearman", "pearson", "auc"]

# Accepted column names, in any case; where several are there, the first of these wins, and a score wins over a label.
SENTENCE1 = ("sentence1", "sentence_1", "sentence_a", "text1", "text_a", "question1", "question", "query", "premise")
SENTENCE2 = ("sentence2", "sentence_2", "sentence_b", "text2", "text_b", "question2", "sentence", "hypothesis")
SCORE = ("score", "similarity_score", "relatedness_score", "similarity", "gold")
LABEL = ("label", "is_duplicate")
_LABELS = dict.fromkeys(("0", "0.0", "false", "not_entailment"), 0.0) | dict.fromkeys(
    ("1", "1.0", "true", "entailment"), 1.0
)


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of sentences and what people said of them.

    Args:
        sentences1: The first sentence of each pair, length n.
        sentences2: The second sentence of each pair, length n.
        gold: Graded scores, or 0 and 1, shape (n,).
    """

    sentences1: list[str]
    sentences2: list[str]
    gold: Vector

    def __post_init__(self) -> None:
        sizes = (len(self.sentences1), len(self.sentences2), len(self.gold))
        if len(set(sizes)) > 1:
            raise InputError(f"A set of pairs needs three lists of one length; these have {sizes}.")
        if not np.isfinite(self.gold).all():
            raise InputError("A set of pairs has NaN or infinity among its gold scores.")

    def __len__(self) -> int:
        return len(self.gold)


def distinct(pair_sets: Iterable[PairSet]) -> list[str]:
    """Every sentence once, in order of appearance."""
    return list(dict.fromkeys(s for pairs in pair_sets for s in [*pairs.sentences1, *pairs.sentences2]))


def read_pairs(path: str | Path) -> tuple[PairSet, Metric]:
    """Read a file of pairs, and the metric that it calls for; see ``load_pairs_file``."""
    path = Path(path)
    headerless = path.suffix.lower() == ".tsv" and _looks_headerless(path)
    return collect_pairs(path, read_tsv(path, ("sentence1", "sentence2", "score")) if headerless else read_table(path))


def collect_pairs(path: str | Path, rows: Iterable[Row]) -> tuple[PairSet, Metric]:
    """Gather the pairs of a table, and the metric that its gold column calls for."""
    firsts, seconds, gold = [], [], []
    columns: tuple[str, str, str] | None = None
    metric: Metric = "spearman"
    for number, row in rows:
        where = place(path, number)
        if columns is None:
            columns, metric = _choose_columns(where, row)
        missing = [name for name in columns if row.get(name) is None]
        if missing:
            raise InputError(f"{where} has nothing in column {missing[0]!r}.")
        firsts.append(parse_sentence(where, row[columns[0]]))
        seconds.append(parse_sentence(where, row[columns[1]]))
        gold.append(
            parse_score(where, row[columns[2]]) if metric == "spearman" else _parse_label(where, row[columns[2]])
        )
    if not gold:
        raise InputError(f"{path} holds no pairs.")
    return PairSet(firsts, seconds, np.array(gold)), metric


def parse_sentence(where: str, value: object) -> str:
    """Return a sentence without the blanks around it, or say that there is none."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where} has {reprlib.repr(value)} where a sentence was expected.")
    return value.strip()


def parse_score(where: str, value: object) -> float:
    """Return a finite number, or say that there is none."""
    try:
        score = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where} has the score {reprlib.repr(value)}; a finite number was expected.")
    return score


def _parse_label(where: str, value: object) -> float:
    text = str(value).strip().lower()
    if text not in _LABELS:
        raise InputError(
            f"{where} has the label {reprlib.repr(value)}; 0 or 1 was expected"
            " (a graded score belongs in a column named 'score')."
        )
    return _LABELS[text]


def _choose_columns(where: str, row: dict[str, Any]) -> tuple[tuple[str, str, str], Metric]:
    """Find the three columns by their accepted names."""
    there = {name.lower(): name for name in row}
    found = []
    for names in (SENTENCE1, SENTENCE2, SCORE + LABEL):
        name = next((name for name in names if name in there), None)
        if name is None:
            raise InputError(f"{where} has the columns {listed(row)}; none of them is one of {', '.join(names)}.")
        found.append(name)
    one, two, gold = (there[name] for name in found)
    return (one, two, gold), "auc" if found[2] in LABEL else "spearman"


def _looks_headerless(path: Path) -> bool:
    """Three columns, the last a number: no header has a number for a name."""
    first = next((line for _, line in read_lines(path) if line), "")
    cells = first.split("\t")
    try:
        return len(cells) == 3 and math.isfinite(float(cells[2]))
    except ValueError:
        return False
