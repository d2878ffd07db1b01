"""The command that judges: does a recipe help here, and which one?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.analysis import Text
from bertflow.cli.judging import OwnData
from bertflow.cli.option_groups import Column, grouped
from bertflow.cli.output import AsJson, Device, EncoderName, PoolingName, Quiet, Seed, print_json, say, start, table

if TYPE_CHECKING:
    from bertflow.evaluation.judgement import Judgement

TO_LABEL = "Pairs to label"


@grouped
def advise(
    sentences: Text,
    *,
    encoder: EncoderName = "mini",
    purpose: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="What the vectors are for: `similarity`, `search`, `clusters` or `paraphrase`; default: the purpose "
            "of your labels, else similarity.",
        ),
    ] = None,
    recipes: Annotated[
        str | None,
        typer.Option(
            "--recipes", "-r", help="Recipes to compare, comma-separated; default: six that are quick to fit."
        ),
    ] = None,
    own: OwnData,
    pooling: PoolingName = None,
    sample: Annotated[int, typer.Option(help="How many sentences to sample from a larger corpus.")] = 5000,
    sample_pairs: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=TO_LABEL, help="Choose this many pairs that are most useful to label."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", rich_help_panel=TO_LABEL, help="The .tsv file for these pairs.")
    ] = None,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say whether a recipe helps on your text: which one, how much, and how sure that is.

        bertflow advise corpus.txt --encoder bert-base-uncased

    Without labels the answer is an estimate. With your own pairs, search or clusters it is measured. To get pairs to label:

        bertflow advise corpus.txt --sample-pairs 100 --output to-label.tsv
    """
    progress = start(quiet, many_fits=True)
    from bertflow.errors import InputError
    from bertflow.evaluation.judgement import judge, write_pairs_to_label
    from bertflow.storage.text_files import read_sentences

    if (sample_pairs is None) != (output is None):
        raise InputError("Pairs to label need both: --sample-pairs 100 --output to-label.tsv.")
    tasks = own.load_own()
    if len(tasks) > 1:
        raise InputError("One kind of labels can decide: give pairs, or a search, or clusters.")
    given = read_sentences(sentences, column)
    options: dict[str, Any] = {
        "pooling": pooling,
        "random_state": seed,
        "device": device,
        "show_progress_bar": progress,
    }
    result = judge(
        given,
        encoder,
        purpose,  # type: ignore[arg-type]  # judge checks it
        tasks[0] if tasks else None,
        recipes=[name.strip() for name in recipes.split(",") if name.strip()] if recipes else None,
        sample=sample,
        **options,
    )
    if sample_pairs is not None and output is not None:
        write_pairs_to_label(result, given, encoder, output, sample_pairs, **options)
    file = "your-sentences.txt" if sentences == "-" else sentences
    if as_json:
        print_json(result.to_dict() | {"command": result.command(file)})
        return
    show_judgement(result, file)
    if output is not None:
        say(
            f"\nWrote {sample_pairs} pairs to [bold]{escape(str(output))}[/]: fill in the last column, then give --pairs."
        )


def show_judgement(result: Judgement, file: str = "your-sentences.txt") -> None:
    """Print the ranking, the verdict in plain words, and the line to run."""
    from bertflow.evaluation.judgement.result import signed

    if result.ranking:
        rows = [
            (
                f"{'[bold]' if one.recipe == result.recipe else ''}{escape(one.recipe)}",
                "–" if one.score is None else f"{one.score:.1f}",
                *(("",) * 2 if one.recipe == "raw" else (signed(one.gain.value), _interval(one.gain))),
            )
            for one in result.ranking
        ]
        title = f"{escape(result.encoder)}, {result.sentences:,} sentences, for {result.purpose}"
        kind = "gain" if result.measured else "expected gain"
        table(title, ("recipe", result.metric or "score", kind, "interval"), rows)
    say(f"\n[bold]{escape(result.headline)}[/]")
    say(escape(result.paragraph))
    for reason in result.reasons:
        say(f"[dim]{escape(reason)}[/]")
    if result.verdict in ("use", "leave"):
        for line in filter(None, (result.command(file), result.code)):
            say(f"\n  {escape(line)}")


def _interval(gain: object) -> str:
    from bertflow.evaluation.judgement.result import Gain, signed

    return f"{signed(gain.low)} to {signed(gain.high)}" if isinstance(gain, Gain) else ""
