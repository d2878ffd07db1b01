"""The command that advises: which pooling and calibrator, or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bertflow.cli.analysis import Column, Text
from bertflow.cli.output import AsJson, Device, EncoderName, Quiet, Seed, print_json, say, start, table

if TYPE_CHECKING:
    from bertflow.advice import Advice


def advise(
    sentences: Text,
    encoder: EncoderName = "mini",
    pairs: Annotated[
        Path | None,
        typer.Option(help="Labelled pairs, 50 or more: sentence1, sentence2, score or 0/1 label. They decide."),
    ] = None,
    poolings: Annotated[
        str | None,
        typer.Option(help="Comma-separated, the one to compare with first; default: the encoder's own and two more."),
    ] = None,
    calibrators: Annotated[
        str, typer.Option(help="Comma-separated; see `bertflow evaluate --help`. `best` and `static` are presets.")
    ] = "none,sn,natsv-1,natsv-10,sn+natsv-6,whitening,flow,best",
    sample: Annotated[int, typer.Option(help="Larger corpora are sampled to this many sentences.")] = 5000,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say which pooling and calibrator to use on your text, or to leave it, and what gain to expect.

        bertflow advise corpus.txt --encoder bert-base-uncased

    Without labels it is an estimate; with `--pairs` it is measured by nested cross-validation.
    """
    progress = start(quiet, many_fits=True)
    from bertflow.advice import advise as run
    from bertflow.evaluation import load_pairs_file
    from bertflow.storage.text_files import read_sentences

    result = run(
        read_sentences(sentences, column),
        encoder,
        load_pairs_file(pairs) if pairs else None,
        poolings=_names(poolings) if poolings else None,
        calibrators=_names(calibrators),
        sample=sample,
        random_state=seed,
        device=device,
        show_progress_bar=progress,
    )
    file = "your-sentences.txt" if sentences == "-" else sentences
    if as_json:
        print_json(result.to_dict() | {"command": result.command(file)})
    else:
        show_advice(result, file)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def show_advice(result: Advice, file: str) -> None:
    """Print the candidates, the advice and the line to run."""
    from bertflow.advice.result import SCALES, signed

    measured = "gain" if result.basis == "pairs" else "expected gain"
    rows = [
        (
            f"{'[bold]' if option.candidate == result.choice else ''}{escape(str(option.candidate))}",
            f"{option.score:.1f}",
            signed(option.gain),
        )
        for option in result.options
    ]
    if rows:
        title = f"{escape(str(result.encoder))}, {result.sentences:,} sentences"
        table(
            title,
            ("pooling + calibrator" if result.baseline.pooling else "calibrator", SCALES[result.basis], measured),
            rows,
        )
    say(f"\n[bold]{escape(result.headline)}[/]")
    for reason in (*result.reasons, *result.notes):
        say(escape(reason))
    for line in filter(None, (result.command(file), result.code)):
        say(f"\n  {escape(line)}")
