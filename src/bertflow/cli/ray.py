"""`bertflow ray`: encoding and applying on many machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.models import Column, ModelFolder
from bertflow.cli.output import AsJson, Quiet, print_json, say, start

ray = typer.Typer(no_args_is_help=True, help="Work on many machines at once, with Ray.")


@ray.callback()
def _many_machines() -> None:
    """Keep `embed` a subcommand: typer would make a group of one command that command."""


@ray.command()
def embed(
    texts: Annotated[
        list[str], typer.Argument(help="Text to embed: .txt (one a line) or .parquet files, or folders of them.")
    ],
    output: Annotated[str, typer.Argument(help="New folder for the parquet files.")],
    model: ModelFolder,
    address: Annotated[
        str | None, typer.Option(help="The cluster, such as `auto`; default: RAY_ADDRESS, else this machine.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="How many workers; default: one per GPU, else one per core.")
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs per worker; default: 1 where there are GPUs; 0.5 puts two workers on each."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="How many sentences a worker encodes at once.")] = 4096,
    rows_per_file: Annotated[int, typer.Option(min=1, help="Least number of rows in an output file.")] = 100_000,
    column: Column = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length one.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the calibrated vectors of many texts to parquet, by all GPUs or cores of a Ray cluster.

    Rows of text files carry `source` and `line`, rows of parquet files keep their columns; they come in any order:

        bertflow ray embed corpus/ vectors/ --model my-model --address auto
    """
    progress = start(quiet)
    from bertflow.integrations import ray as engine

    written = engine.embed(
        texts,
        output,
        model,
        concurrency=concurrency,
        num_gpus=gpus_per_worker,
        batch_size=batch_size,
        column=column,
        normalize_embeddings=normalize,
        rows_per_file=rows_per_file,
        address=address,
        show_progress_bar=progress,
    )
    if as_json:
        print_json(asdict(written))
    else:
        say(
            f"Wrote {written.rows} vectors of {written.dim} dimensions to [bold]{escape(written.output)}[/] "
            f"({written.files} file(s))."
        )
