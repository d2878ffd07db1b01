"""The command that shows a space on one page: report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bertflow.cli.advice import show_judgement
from bertflow.cli.analysis import Counts, Text
from bertflow.cli.embedding import Overwrite
from bertflow.cli.option_groups import ModelOptions, grouped
from bertflow.cli.output import print_json, say, start
from bertflow.storage.outputs import check_output_file

if TYPE_CHECKING:
    from bertflow.report import Report


@grouped
def report(
    sentences: Text,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs with sentence1, sentence2 and score or 0/1 label: with them the verdict is measured."),
    ] = None,
    counts: Counts = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the same pictures as PNG and SVG.")] = None,
    title: Annotated[
        str | None, typer.Option(help="The name of your text on the page; default: the file's name.")
    ] = None,
    hide_texts: Annotated[
        bool,
        typer.Option("--hide-texts", help="Show a number instead of each sentence, so that the page can be shared."),
    ] = False,
    overwrite: Overwrite = False,
    asked: ModelOptions,
) -> None:
    """Write an HTML page that shows the space before and after calibration, and whether it helps on your data.

    bertflow report corpus.txt --encoder mini --pairs my-pairs.tsv --output report.html
    """
    progress = start(asked.quiet)
    from bertflow.evaluation import load_pairs_file
    from bertflow.model import BertFlow
    from bertflow.report import Origin, write_report
    from bertflow.storage.text_files import read_sentences

    check_output_file(output, [sentences, pairs, counts, asked.model, asked.encoder], overwrite=overwrite)
    texts = read_sentences(sentences, asked.column)
    graded = load_pairs_file(pairs) if pairs else None
    named = {"sentences": None if sentences == "-" else sentences, "title": title}
    result = write_report(
        texts,
        output,
        asked.encoder,
        asked.pooling,
        asked.recipe,
        model=BertFlow.from_pretrained(asked.model, device=asked.device) if asked.model else None,
        pairs=graded,
        counts=counts,
        figures=figures,
        show_texts=not hide_texts,
        origin=Origin(**{name: str(value) for name, value in named.items() if value is not None}),
        random_state=asked.seed,
        device=asked.device,
        show_progress_bar=progress,
    )
    if asked.as_json:
        print_json(result.to_dict())
    else:
        show_report(result, "your-sentences.txt" if sentences == "-" else sentences)


def show_report(result: Report, file: str = "your-sentences.txt") -> None:
    """Print the judgement and where the page is."""
    show_judgement(result.judgement, file)
    for note in result.notes:
        say(f"[dim]{escape(note)}[/]")
    say(f"\nWrote [bold]{escape(result.path)}[/] ({result.size / 1e6:.1f} MB): open it in a browser.")
    if result.figures:
        say(f"Wrote {len(result.figures)} figures to [bold]{escape(str(Path(result.figures[0]).parent))}[/].")
