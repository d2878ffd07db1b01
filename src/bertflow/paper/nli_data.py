"""NLI rows for fine-tuning: from local files or the hub, labels checked, what has no gold left out and counted."""

from __future__ import annotations

import hashlib
import logging
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertflow.errors import InputError, require
from bertflow.storage.text_files import Row, listed, place, read_lines, read_table, read_tsv

logger = logging.getLogger(__name__)

LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}
HUB_SETS = ("stanfordnlp/snli", "nyu-mll/multi_nli")
_NO_GOLD = ("-", "-1")  # where SNLI's annotators disagreed: in its files, and on the hub
_CODES = LABELS | {str(code): code for code in LABELS.values()} | dict.fromkeys(_NO_GOLD, -1)
_COLUMNS = (("premise", "sentence1"), ("hypothesis", "sentence2"), ("label", "gold_label"))


@dataclass
class NliRows:
    """Pairs of sentences with a label.

    Args:
        premises: The first sentences.
        hypotheses: The second ones.
        labels: 0 entailment, 1 neutral, 2 contradiction.
        sources: The files or data sets they came from.
        left_out: How many rows were not taken, by reason.
    """

    premises: list[str] = field(default_factory=list)
    hypotheses: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, where: str, row: Mapping[str, Any]) -> None:
        """Take one row, or count it as left out; ``where`` names it in an error."""
        first, second, third = (_cell(where, row, names) for names in _COLUMNS)
        premise, hypothesis = _text(where, first), _text(where, second)
        code = _CODES.get(str(third).strip().lower())
        if code is None:
            raise InputError(
                f"{where} has the label {reprlib.repr(third)}; wanted: {', '.join(LABELS)}, or 0, 1, 2, or '-' for none."
            )
        if code < 0:
            self.left_out["no gold label"] += 1
        elif not premise.strip() or not hypothesis.strip():
            self.left_out["blank sentence"] += 1
        else:
            self.premises.append(premise)
            self.hypotheses.append(hypothesis)
            self.labels.append(code)

    def digest(self) -> str:
        """Return a hash of the rows, in their order."""
        sha = hashlib.sha256()
        for row in zip(self.premises, self.hypotheses, self.labels, strict=True):
            sha.update(repr(row).encode())
        return sha.hexdigest()


def read_nli(files: str | Path | Sequence[str | Path]) -> NliRows:
    """Read labelled pairs from local files.

    Rows without a gold label (SNLI's ``-``) or with a blank sentence are left out and counted in the log.

    Args:
        files: One or more of ``.tsv``, ``.csv``, ``.jsonl``, ``.parquet`` with the columns premise, hypothesis, label (or
            sentence1, sentence2, gold_label). A ``.tsv`` without a header has these three columns in this order.
    """
    rows = NliRows()
    for file in [files] if isinstance(files, str | Path) else files:
        rows.sources.append(str(file))
        for number, row in _table(file):
            rows.add(place(file, number), row)
    return _usable(rows)


def download_nli() -> NliRows:
    """Fetch the training rows of SNLI and MultiNLI, the paper's, from the Hugging Face hub."""
    datasets = require("datasets", extra="nli")
    rows = NliRows()
    for name in HUB_SETS:
        try:
            split = datasets.load_dataset(name, split="train")
        except Exception as error:  # the libraries beneath raise a dozen unrelated kinds when offline
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(
                f"{name} could not be fetched from the Hugging Face hub ({reason}): check the network, or give local files "
                "with premise, hypothesis and label (train=[...], on the command line --train FILE)."
            ) from error
        rows.sources.append(name)
        for number, row in enumerate(split, 1):
            rows.add(f"{name}, row {number},", row)
    return _usable(rows)


def _table(file: str | Path) -> Iterator[Row]:
    """Yield the rows of a file; the custom of NLI's .tsv files is to have no header."""
    if Path(file).suffix.lower() == ".tsv":
        first = next((line for _, line in read_lines(file) if line), "")
        if not {cell.strip() for cell in first.split("\t")} & {name for names in _COLUMNS for name in names}:
            return read_tsv(file, [names[0] for names in _COLUMNS])
    return read_table(file)


def _cell(where: str, row: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise InputError(f"{where} has no column {' or '.join(names)}; it has: {listed(row)}.")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} has {reprlib.repr(value)} for a sentence; text was expected.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} has half a character (a lone surrogate) in {reprlib.repr(value)}.") from None
    return value


def _usable(rows: NliRows) -> NliRows:
    left_out = ", ".join(f"{count} with {reason}" for reason, count in rows.left_out.items()) or "none"
    if not rows.labels:
        raise InputError(f"{listed(rows.sources) or 'No file'} holds no labelled pair (rows left out: {left_out}).")
    logger.info("%d labelled pairs read; left out: %s.", len(rows), left_out)
    return rows
