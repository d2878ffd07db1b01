"""`bertflow reproduce`: the paper's tables and figures, next to ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bertflow.cli.judging import Format, chosen_format
from bertflow.cli.output import AsJson, Device, Markdown, Quiet, print_json, say, start, table
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.paper.layout import PaperTable
    from bertflow.paper.sts import Options

TABLES = ("table1", "table2", "table3", "table4", "table5", "table6", "table8")
FIGURES = ("figure1", "figure2")


def reproduce(
    what: Annotated[str, typer.Argument(help=f"{', '.join((*TABLES, *FIGURES))}.", metavar="WHAT")],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", "-e", help="`mini`, a folder, or a hub id: `bert-base-uncased` is the real reproduction."
        ),
    ] = "mini",
    preset: Annotated[str, typer.Option(help="How the flow is fitted: `paper` or `default`.")] = "paper",
    seeds: Annotated[int, typer.Option(help="How many seeds of the flow (table8: of the fine-tuning).")] = 5,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of data sets; default: $BERTFLOW_DATA, then what `bertflow data get` fetched."),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of edit distance (table6, figure2): `words`, `wordpieces`, `characters`.")
    ] = "words",
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate of the NLI fine-tuning (table8); 2e-5 is the paper's.")
    ] = 2e-5,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="For a figure: .png, .svg or .pdf; table8: folder of the fine-tuned models."
        ),
    ] = None,
    device: Device = None,
    form: Format = None,
    markdown: Markdown = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Regenerate a table or figure of the paper: paper | ours | difference, with seeds and settings.

    bertflow reproduce table5 --encoder bert-base-uncased
    """
    progress = start(quiet, many_fits=True)
    form = chosen_format(form, None, markdown, as_json)
    from bertflow.paper.sts import Options

    options = Options(encoder, data, seeds, preset, device, progress)
    if what in FIGURES:
        _draw(what, options, output or Path(f"{what}.png"), unit, as_json)
        return
    result = _run(what, options, unit, learning_rate, output)
    if form is not None:
        sys.stdout.write(result.to(form))
    else:
        table(f"{result.name}: {result.title} — paper | ours | difference", ("", *result.columns), list(result.cells()))
        for line in (f"{key}: {value}" for key, value in result.settings.items()):
            say(f"[dim]{escape(line)}[/]")
        for note in result.notes:
            say(escape(note))


def _run(what: str, options: Options, unit: str, learning_rate: float, output: Path | None) -> PaperTable:
    from bertflow.paper import sts

    if what in ("table2", "table3", "table4", "table5"):
        result: PaperTable = getattr(sts, what)(options)
        return result
    if what == "table1":
        from bertflow.paper import table1

        return table1.run(options.encoder, data=options.data)
    if what == "table6":
        from bertflow.paper import table6

        return table6.run(options.encoder, data=options.data, unit=unit, preset=options.preset)
    if what == "table8":
        from bertflow.paper import table8

        return table8.run(options, learning_rate=learning_rate, folder=output)
    raise InputError(f"There is no {what!r} to reproduce; choose from {', '.join((*TABLES, *FIGURES))}.")


def _draw(what: str, options: Options, output: Path, unit: str, as_json: bool) -> None:
    from bertflow.paper import figures

    if what == "figure1":
        figures.figure1(options.encoder, output, data=options.data)
    else:
        figures.figure2(options.encoder, output, data=options.data, unit=unit, preset=options.preset)
    if as_json:
        print_json({"figure": what, "output": str(output), "encoder": options.encoder})
    else:
        say(f"Drew {what} with {escape(options.encoder)} to [bold]{escape(str(output))}[/].")
