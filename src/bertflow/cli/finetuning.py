"""The command that tunes an encoder on natural language inference: finetune-nli."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Device, EncoderName, Quiet, Seed, print_json, say, start


def finetune_nli(
    output: Annotated[Path, typer.Argument(help="Folder for the tuned encoder.")],
    train: Annotated[
        list[Path] | None,
        typer.Option(
            "--train",
            "-t",
            help="A .tsv, .csv, .jsonl or .parquet with premise, hypothesis, label; may be repeated. Default: SNLI and "
            "MultiNLI from the hub.",
            show_default=False,
        ),
    ] = None,
    encoder: EncoderName = "mini",
    pooling: Annotated[str, typer.Option("--pooling", "-p", help="`mean`, `cls` or `max`.")] = "mean",
    epochs: Annotated[float, typer.Option(help="Passes over the rows; a fraction is a part of a pass.")] = 1.0,
    batch_size: Annotated[int, typer.Option(help="Pairs in each step.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-5,
    max_length: Annotated[int, typer.Option(help="Tokens read of each sentence in training.")] = 64,
    seed: Seed = 0,
    device: Device = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Continue from the checkpoints of a killed run, or start again."),
    ] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tune an encoder on natural language inference (SBERT's siamese softmax), for the paper's Table 3.

    To continue a killed run from its last checkpoint, give the same command again:

        bertflow finetune-nli my-nli-encoder --train snli.tsv --train mnli.tsv --encoder mini
    """
    progress = start(quiet)
    from bertflow.paper import nli_tuning

    saved = nli_tuning.finetune_nli(
        output,
        train,
        encoder,
        pooling=pooling,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        seed=seed,
        device=device,
        resume=resume,
        show_progress_bar=progress,
    )
    record = json.loads((saved / nli_tuning.RECORD).read_text(encoding="utf-8"))
    if as_json:
        print_json({"saved": str(saved), **record})
        return
    left_out = sum(record["left_out"].values())
    say(
        f"Tuned on {record['rows']} pairs ({left_out} left out) in {record['steps']} steps; loss {record['final_loss']:.3f}."
    )
    say(f"Saved to [bold]{escape(str(saved))}[/]. Next:")
    say(f"  bertflow reproduce table3 --encoder {escape(str(saved))}")
