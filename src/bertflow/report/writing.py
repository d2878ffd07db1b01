"""From a corpus to one HTML file, and the same pictures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertflow.errors import InputError, require
from bertflow.evaluation import PairTask
from bertflow.evaluation.judgement import Judgement
from bertflow.geometry import Spaces, make_spaces
from bertflow.model import BertFlow
from bertflow.report.anonymity import hide_texts
from bertflow.report.findings import gather
from bertflow.report.page import render
from bertflow.report.verdict import Origin
from bertflow.storage.atomic import atomic_file


@dataclass(frozen=True)
class Report:
    """What was written.

    Args:
        path: The HTML file.
        size: Its bytes.
        figures: The PNG and SVG files.
        judgement: What it says at the top.
        notes: What could not be measured, and why.
    """

    path: str
    size: int
    figures: tuple[str, ...]
    judgement: Judgement
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"judgement": self.judgement.to_dict()}


def write_report(
    sentences: Sequence[str],
    output: str | Path = "report.html",
    encoder: Any = "mini",
    pooling: str | None = None,
    recipe: str | None = None,
    *,
    model: BertFlow | None = None,
    pairs: PairTask | None = None,
    counts: str | Path | None = None,
    figures: str | Path | None = None,
    origin: Origin | None = None,
    show_texts: bool = True,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Report:
    """Write one self-contained HTML page that shows a corpus' space before and after calibration, and what to make of it.

    Args:
        sentences: Text, a few thousand sentences or more; repeated ones count once.
        output: The HTML file; its folder is made if need be.
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
        pooling: One of ``bertflow.POOLINGS``, for recipes of one view.
        recipe: A name of ``bertflow.recipes()``, fitted on the corpus itself; by default what ``BertFlow.fit`` would take.
        model: A fitted model instead of encoder and recipe.
        pairs: Pairs with gold scores, as from ``bertflow.evaluation.load_pairs_file``: they decide the verdict.
        counts: A file of ``word count`` or ``token count`` lines; by default the encoder's own counts, or the corpus'.
        figures: A folder for the same pictures as PNG and SVG; needs ``pip install 'bertflow[figures]'``.
        origin: What the page calls the files in the commands that it suggests.
        show_texts: False calls every sentence by a number, for a report to be shared where its text may not be.
        random_state: Makes the result repeatable, byte for byte on one machine.
        device: For an encoder given by name.
        show_progress_bar: Show progress.

    Example:
        >>> from bertflow import write_report
        >>> from bertflow.data import sample_sentences
        >>> print(write_report(sample_sentences(), "report.html").judgement.headline)  # doctest: +SKIP
    """
    _check_early(output, counts, figures)
    spaces = make_spaces(
        sentences,
        encoder,
        pooling,
        recipe,
        model=model,
        random_state=random_state,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    return report_spaces(
        spaces, output, pairs=pairs, counts=counts, figures=figures, origin=origin, show_texts=show_texts
    )


def report_spaces(
    spaces: Spaces,
    output: str | Path = "report.html",
    *,
    pairs: PairTask | None = None,
    counts: str | Path | None = None,
    figures: str | Path | None = None,
    origin: Origin | None = None,
    show_texts: bool = True,
) -> Report:
    """Write the report of spaces that are there already; arguments as in ``write_report``."""
    _check_early(output, counts, figures)
    origin = origin or Origin()
    findings = gather(spaces, pairs=pairs, counts=counts)
    if not show_texts:
        findings = hide_texts(findings)
    page = render(findings, origin).encode("utf-8", errors="replace")  # half a surrogate pair has no UTF-8
    drawn: list[Path] = []
    if figures is not None:
        from bertflow.report.drawings import draw

        drawn = draw(findings, figures)
    with atomic_file(output) as temporary:
        temporary.write_bytes(page)
    return Report(str(output), len(page), tuple(map(str, drawn)), findings.judgement, findings.analysis.notes)


def _check_early(output: str | Path, counts: str | Path | None, figures: str | Path | None) -> None:
    """Refuse before minutes of encoding what would fail after them."""
    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"A report ends in .html; {str(output)!r} does not. Name it so, and a browser opens it.")
    if figures is not None:
        require("matplotlib", extra="figures")
        if Path(figures).exists() and not Path(figures).is_dir():
            raise InputError(f"{str(figures)!r} is a file; the figures need a folder.")
    if counts is not None and not Path(counts).is_file():
        raise InputError(f"There is no file {str(counts)!r}; give one with a word or token and its count a line.")
