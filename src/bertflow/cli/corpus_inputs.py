"""What the commands on a corpus share: texts with their line or row numbers, files of rows, and the model."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertflow.cli.option_groups import ModelOptions
from bertflow.cli.recipes import recipe_of
from bertflow.errors import InputError
from bertflow.storage.atomic import atomic_file
from bertflow.storage.text_files import iter_sentences, read_table

if TYPE_CHECKING:
    from bertflow.model import BertFlow

Corpus = Annotated[str, typer.Argument(help="Your texts: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")]
TABLES = ".jsonl", ".csv", ".tsv", ".parquet"
WRITTEN = ".jsonl", ".csv"


@dataclass(frozen=True)
class TextFile:
    """The texts of a file that are not blank.

    Args:
        path: The file.
        texts: Its texts (n).
        lines: The line, or row of a parquet file, of each text, from 1 (n).
        rows: All columns of each text's row (n); of plain text ``{"text": text}``.
    """

    path: str
    texts: list[str]
    lines: list[int]
    rows: list[dict[str, Any]]

    @property
    def place(self) -> str:
        """What ``lines`` counts."""
        return "row" if Path(self.path).suffix.lower() in TABLES else "line"

    @property
    def suffix(self) -> str:
        """How a file of some of its rows should end."""
        suffix = Path(self.path).suffix.lower()
        return ".txt" if suffix not in TABLES else suffix if suffix in WRITTEN else ".jsonl"


def read_text_file(path: str, column: str | None = None) -> TextFile:
    """Read a text file or a table with all its columns; blank texts are left out."""
    given = list(iter_sentences(path, column))
    if path != "-" and Path(path).suffix.lower() in TABLES:
        numbered = list(read_table(path))
    else:
        numbered = [(line, {"text": text}) for line, text in enumerate(given, 1)]
    kept = [(text, line, row) for text, (line, row) in zip(given, numbered, strict=True) if text.strip()]
    if not kept:
        raise InputError(f"{path} holds no text; at least one was expected.")
    texts, lines, rows = (list(one) for one in zip(*kept, strict=True))
    return TextFile(path, texts, lines, rows)


def write_rows(path: str | Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a ``.jsonl`` or ``.csv`` file, or their column ``text`` to any other, one a line; whole or not at all."""
    suffix = Path(path).suffix.lower()
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        elif suffix == ".csv":
            writer = csv.DictWriter(file, _columns(rows), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(str(row["text"]) + "\n" for row in rows)


def _columns(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


class Showing:
    """A model that shows a progress bar while it encodes.

    Args:
        model: The model.
        progress: Whether to show the bar.
    """

    def __init__(self, model: BertFlow, progress: bool) -> None:
        self.model, self.progress, self.parts = model, progress, model.parts

    def encode(self, sentences: Any, /) -> Any:
        """Map n texts to (n, d)."""
        return self.model.encode(sentences, show_progress_bar=self.progress)


def model_for(texts: list[str], asked: ModelOptions, progress: bool) -> Showing:
    """Return the saved model, or the recipe fitted on the texts."""
    from bertflow.model import BertFlow

    if asked.model is not None:
        if asked.recipe or asked.pooling:
            raise InputError(
                "A saved model has its own recipe and pooling: leave out --recipe and --pooling, or --model."
            )
        return Showing(BertFlow.from_pretrained(asked.model, device=asked.device), progress)
    options: dict[str, Any] = {} if asked.device is None else {"device": asked.device}
    options |= {"recipe": recipe_of(asked.recipe), "random_state": asked.seed, "show_progress_bar": progress}
    return Showing(BertFlow.fit(texts, asked.encoder, asked.pooling, **options), progress)
