"""The command that looks at the space itself: analyze."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.option_groups import ModelOptions, grouped
from bertflow.cli.output import print_json, say, start, table

Text = Annotated[str, typer.Argument(help="Your sentences: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")]

Counts = Annotated[
    Path | None,
    typer.Option(
        help="File of `word count` or `token count` lines; default: the encoder's own counts, or your sentences'."
    ),
]


@grouped
def analyze(
    sentences: Text,
    *,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs with sentence1, sentence2 and score: adds edit distance and alignment."),
    ] = None,
    counts: Counts = None,
    asked: ModelOptions,
) -> None:
    """Show what is wrong with a space and what calibration changes: isotropy, word frequency, holes, edit distance.

    bertflow analyze corpus.txt --encoder mini --pairs my-pairs.tsv
    """
    progress = start(asked.quiet)
    from bertflow.evaluation import load_pairs_file
    from bertflow.geometry import analyze as run
    from bertflow.geometry import readable_tables
    from bertflow.model import BertFlow
    from bertflow.storage.text_files import read_sentences

    texts = read_sentences(sentences, asked.column)
    graded = load_pairs_file(pairs) if pairs else None
    result = run(
        texts,
        asked.encoder,
        asked.pooling,
        asked.recipe,
        model=BertFlow.from_pretrained(asked.model, device=asked.device) if asked.model else None,
        pairs=graded,
        counts=counts,
        random_state=asked.seed,
        device=asked.device,
        show_progress_bar=progress,
    )
    if asked.as_json:
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
