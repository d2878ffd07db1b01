"""Tables of tokens against model2vec with the same tokenizer and dimensions, and against the encoder they come from.

    pip install model2vec
    BERTFLOW_DATA=../shared/data python benchmarks/static.py

All take turns in one run, so that noise hits all alike; a ratio is the median over the turns, with the lowest and the highest.
model2vec's model has the very rows that ours maps tokens to.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer
from encoding import mixes
from model2vec import StaticModel
from peers import in_turns, ratio

from bertflow import BertFlow
from bertflow.data import sample_sentences
from bertflow.runtime.tokens import LightTable

RECIPES = {"static-256": 256, "static": 1024}


def fitted(recipe: str, folder: Path) -> BertFlow:
    """Return a saved and loaded model of mini."""
    model = BertFlow.fit(sample_sentences(), "mini", recipe=recipe, device="cpu")
    return BertFlow.from_pretrained(model.save_pretrained(folder / recipe), device="cpu")


def theirs(model: BertFlow) -> Any:
    """Return model2vec's model with the same tokenizer and the same rows."""
    table = next(view for view in model._light._views if isinstance(view, LightTable))
    table._see(np.arange(len(table.raw)))
    return StaticModel(table._rows[:-1].copy(), table.tokenizer, max_length=None)


def compare(title: str, contenders: dict[str, Callable[[], object]], texts: int, repeats: int) -> None:
    """Print one table: each contender against model2vec of 256 dimensions."""
    seconds = in_turns(contenders, repeats, "cpu")
    print(f"\n{title}\n\n| | microseconds a text | its speed ÷ model2vec's, 256-d |\n|---|---:|---:|")
    for name, values in seconds.items():
        micro = 1e6 * statistics.median(values) / texts
        print(f"| {name} | {micro:.1f} | {ratio(seconds['model2vec, 256-d'], values)} |")


def main(repeats: int = 7, texts: int = 4000, single: int = 200) -> None:
    """Print a table for each mix of texts, and one for single texts."""
    with tempfile.TemporaryDirectory() as scratch:
        models: dict[str, Any] = {recipe: fitted(recipe, Path(scratch)) for recipe in RECIPES}
        models |= {f"model2vec, {RECIPES[recipe]}-d": theirs(models[recipe]) for recipe in RECIPES}
        for mix, sentences in mixes(texts).items():
            runs = {name: partial(model.encode, sentences) for name, model in models.items()}
            compare(f"{len(sentences)} texts of {mix}", runs, len(sentences), repeats)

        def one_by_one(model: Any, given: list[str]) -> None:
            for text in given:
                model.encode(text)

        given = sample_sentences()[:single]
        runs = {name: partial(one_by_one, model, given) for name, model in models.items()}
        compare("one text at a time", runs, len(given), repeats)


if __name__ == "__main__":
    typer.run(main)
