"""Make the calibrator that ships as "mini-flow": the flow of the mini encoder, fitted on general text.

    python results/fit_mini_flow.py TEXT_FOLDER

TEXT_FOLDER holds plain text, one paragraph a line, in files named part-*.txt.xz in random order of paragraphs (ours:
English Wikipedia). Writes src/bertflow/data/mini-flow. To be run again whenever the mini encoder is replaced; a test says so.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bertflow import BertFlow
from bertflow.data import MINI, shipped_model
from bertflow.errors import InputError

SENTENCES = 5_000  # more fit Wikipedia better and everything else worse (docs/refit.md)
LONGEST = 40  # characters: what people compare is short, and a flow of longer sentences suits it less (docs/refit.md)
_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=[\"'“‘(]?[A-Z0-9])"
)  # a quotation's end may follow the full stop


def general_sentences(folder: str | Path, number: int, longest: int = LONGEST) -> list[str]:
    """Return the first ``number`` different sentences of 20 to ``longest`` characters in a folder of paragraphs."""
    found: dict[str, None] = {}
    for sentence in _sentences(Path(folder)):
        if 20 <= len(sentence) <= longest:
            found[sentence] = None
        if len(found) == number:
            return list(found)
    raise InputError(f"{folder} holds {len(found):,} such sentences in part-*.txt.xz; {number:,} were wanted.")


def _sentences(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("part-*.txt.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from _END.split(line.strip())


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of part-*.txt.xz, one paragraph a line.")],
    number: Annotated[int, typer.Option(help="Sentences to fit on.")] = SENTENCES,
) -> None:
    """Fit the flow of the mini encoder on general text and put it where it ships."""
    model = BertFlow.fit(
        general_sentences(folder, number), MINI, recipe="flow", random_state=0, device="cpu", show_progress_bar=True
    )
    model.card = {"language": "en"}
    model.save_pretrained(shipped_model("mini-flow"))


if __name__ == "__main__":
    typer.run(main)
