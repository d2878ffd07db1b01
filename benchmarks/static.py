"""Throughput of the presets `static` and `best` against `default`: the same fitted texts, from text to calibrated vector.

python benchmarks/static.py
"""

from __future__ import annotations

import statistics
from functools import partial

import typer
from encoding import mixes
from peers import in_turns, ratio

from bertflow import BertFlow


def main(repeats: int = 5, texts: int = 2000) -> None:
    """Print one table for each mix of texts."""
    for mix, sentences in mixes(texts).items():
        models = {preset: BertFlow.fit(sentences, "mini", preset=preset) for preset in ("default", "static", "best")}
        runs = {name: partial(model.encode, sentences) for name, model in models.items()}
        seconds = in_turns(runs, repeats, "cpu")
        print(
            f"\n{len(sentences)} texts of {mix}, mini\n\n| preset | ms a thousand | times as fast as default |\n|---|---:|---:|"
        )
        for name, values in seconds.items():
            milliseconds = 1e6 * statistics.median(values) / len(sentences)
            print(f"| {name} | {milliseconds:.0f} | {ratio(seconds['default'], values)} |")


if __name__ == "__main__":
    typer.run(main)
