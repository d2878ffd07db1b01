"""One look at what is held back: STS14, STS15, STS16, STS-B test and SICK-R test, after a choice was committed.

    python results/held_back.py mini "best without a flow, chosen on development data (092b0ca)"

Every look is logged in results/looks.tsv, with the commit that it was made at; look once.
"""

from __future__ import annotations

import datetime
import subprocess
import warnings
from pathlib import Path

import typer
from shared_data import use_shared_data

from bertflow import Encoder
from bertflow.evaluation import load_task
from bertflow.evaluation.comparison import compare_recipes

HERE = Path(__file__).parent
SETS = ("STS14", "STS15", "STS16", "STS-B", "SICK-R")
RECIPES = ("raw", "whitening", "flow", "static", "best")


def main(encoder: str, why: str) -> None:
    """Fit each recipe on each set's own texts, score it, and log the look."""
    use_shared_data()
    warnings.simplefilter("ignore")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    loaded = Encoder(encoder, max_length=128, device="cpu")
    found = compare_recipes(loaded, [load_task(name) for name in SETS], RECIPES, resamples=0, show_progress_bar=True)
    log = HERE / "looks.tsv"
    head = "" if log.is_file() else "date\tcommit\tencoder\trecipe\t" + "\t".join(SETS) + "\taverage\twhy\n"
    day = datetime.datetime.now(datetime.timezone.utc).date()
    with log.open("a", encoding="utf-8") as file:
        file.write(head)
        for recipe in RECIPES:
            values = [found.results[recipe][name].value for name in SETS]
            figures = "\t".join(f"{value:.2f}" for value in [*values, sum(values) / len(values)])
            file.write(f"{day}\t{commit.strip()}\t{Path(encoder).name}\t{recipe}\t{figures}\t{why}\n")
    typer.echo(log.read_text())


if __name__ == "__main__":
    typer.run(main)
