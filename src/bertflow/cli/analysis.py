"""The commands that look at the space itself: analyze, outliers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.output import (
    AsJson,
    Device,
    EncoderName,
    PoolingName,
    Quiet,
    Seed,
    print_json,
    say,
    start,
    table,
)
from bertflow.cli.recipes import RecipeName

Text = Annotated[str, typer.Argument(help="Your sentences: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")]
Column = Annotated[
    str | None, typer.Option(help="Column with the text, in a .jsonl, .csv, .tsv or .parquet file.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A saved model instead of encoder and recipe.", show_default=False),
]


def analyze(
    sentences: Text,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    recipe: RecipeName = None,
    model: Model = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs with sentence1, sentence2 and score: adds edit distance and alignment."),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            help="`word count` or `token count` lines; default: the encoder's own, or your sentences are counted."
        ),
    ] = None,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what is wrong with a space and what calibration changes: isotropy, word frequency, holes, edit distance.

    bertflow analyze corpus.txt --encoder mini --pairs my-pairs.tsv
    """
    progress = start(quiet)
    from bertflow.evaluation import load_pairs_file
    from bertflow.geometry import analyze as run
    from bertflow.geometry import readable_tables
    from bertflow.model import BertFlow
    from bertflow.storage.text_files import read_sentences

    texts = read_sentences(sentences, column)
    graded = load_pairs_file(pairs) if pairs else None
    result = run(
        texts,
        encoder,
        pooling,
        recipe,
        model=BertFlow.from_pretrained(model, device=device) if model else None,
        pairs=graded,
        counts=counts,
        random_state=seed,
        device=device,
        show_progress_bar=progress,
    )
    if as_json:
        print_json(result.to_dict())
        return
    settings = result.settings
    parts = (settings["encoder"], settings["pooling"], settings["recipe"], f"{settings['sentences']} sentences")
    say(f"\n[bold]{escape(' · '.join(part for part in parts if part))}[/], fitted on {settings['fitted_on']}\n")
    for one in readable_tables(result):
        rows = [tuple(map(escape, row)) for row in one.rows]
        table(escape(one.title), tuple(map(escape, one.columns)), rows, text_last=one.text_last)
        say(f"[dim]{escape(one.reading)}[/]\n")
    for note in result.notes:
        say(f"[dim]{escape(note)}[/]")


def outliers(
    sentences: Text,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A saved model, such as one of a clean corpus.", show_default=False),
    ] = None,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the least likely sentences of a corpus: garbage, other languages and true oddities come up first.

    Without `--model`, each sentence is scored by a flow that was fitted on other sentences of the corpus:

        bertflow outliers corpus.txt --top 20
    """
    progress = start(quiet)
    from bertflow.geometry import find_outliers
    from bertflow.model import BertFlow
    from bertflow.storage.text_files import read_sentences

    given = read_sentences(sentences, column, keep_blank=True)
    kept = [number for number, text in enumerate(given, 1) if text.strip()]
    result = find_outliers(
        [given[number - 1] for number in kept],
        encoder,
        pooling,
        model=BertFlow.from_pretrained(model, device=device) if model else None,
        top=top,
        random_state=seed,
        device=device,
        show_progress_bar=progress,
    )
    lines = [kept[one.position] for one in result.entries]
    if as_json:
        found = result.to_dict()
        for entry, line in zip(found["entries"], lines, strict=True):
            entry["line"] = line
            del entry["position"]  # among the sentences that are not blank: of no use outside
        print_json(found)
        return
    rows = [
        (str(one.rank), _figure(one.bits_per_dim, 3), _figure(one.z, 1), str(line), escape(one.text))
        for one, line in zip(result.entries, lines, strict=True)
    ]
    where = "row" if Path(sentences).suffix.lower() in (".jsonl", ".csv", ".tsv", ".parquet") else "line"
    table(None, ("", "bits/dim", "z", where, "sentence"), rows, text_last=True)
    by = f"a flow fitted on other parts of the corpus ({result.folds} folds)" if result.folds else "the model"
    say(
        f"[dim]The least likely of {result.sentences} different sentences, by {by}. bits/dim: higher is less likely; z: robust "
        "deviations from the median log-density.[/]"
    )


def _figure(value: float | None, digits: int) -> str:
    return "∞" if value is None else f"{value:.{digits}f}"
