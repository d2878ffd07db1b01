"""What is new? Neighbours in the calibrated space against the flow's density, Mahalanobis' distance and raw neighbours.

    python results/novelty.py [--encoder mini …] > results/novelty.md

Every method sees a corpus without labels, then ranks texts of its kinds and of none. AUROC ×100, and of the known ones the
share that is taken for new where 95 % of the new ones are found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from corpora import banking, chained, lcqmc_pairs, qqp_pairs
from sklearn.metrics import roc_auc_score, roc_curve

from bertflow import BertFlow, Encoder
from bertflow.arrays import Matrix
from bertflow.corpus import find_outliers
from bertflow.corpus.novelty import novelty_scores
from bertflow.corpus.vectors import unit_vectors
from bertflow.moments import Moments
from bertflow.storage.remembering import Remembering

RECIPES = "raw", "whitening", "whitening-half", "static", "best"


class Setting(NamedTuple):
    """A corpus, and texts of its kinds and of none."""

    corpus: list[str]
    known: list[str]
    new: list[str]


def main(
    encoder: Annotated[list[str], typer.Option(help="Model name or folder.")] = ["mini"],  # noqa: B006
    most: Annotated[int, typer.Option(help="Texts of a corpus; of new and known ones a third as many at most.")] = 3000,
    seed: Annotated[int, typer.Option(help="Draws kinds and texts.")] = 0,
) -> None:
    """Print a table for each encoder."""
    typer.echo(
        "# What is new here?\n\nBy `python results/novelty.py`: AUROC ×100, and in brackets the share of known texts that is"
    )
    typer.echo("taken for new where 95 % of the new ones are found. Nothing saw a label.\n")
    settings = made(most, np.random.default_rng(seed))
    for name, setting in settings.items():
        typer.echo(f"* {name}: {len(setting.corpus)} texts, {len(setting.known)} known, {len(setting.new)} new.")
    for one in encoder:
        typer.echo(f"\n## {Path(one).name}\n\n| | {' | '.join(settings)} |\n|---{'|---:' * len(settings)}|")
        known = Remembering(Encoder(one, "first-last-avg"))
        for title, score in methods(known).items():
            typer.echo(f"| {title} | {' | '.join(judged(setting, score) for setting in settings.values())} |")


def methods(encoder: Remembering) -> dict[str, Callable[[list[str], list[str]], Matrix]]:
    """Return what each method finds: from a corpus and texts to scores, the higher the newer."""

    def neighbours(recipe: str) -> Callable[[list[str], list[str]], Matrix]:
        def score(corpus: list[str], texts: list[str]) -> Matrix:
            model = BertFlow.fit(corpus, encoder, recipe=recipe)
            return novelty_scores(unit_vectors(texts, model), unit_vectors(corpus, model))

        return score

    def verb(recipe: str) -> Callable[[list[str], list[str]], Matrix]:
        def score(corpus: list[str], texts: list[str]) -> Matrix:
            model = BertFlow.fit(corpus, encoder, recipe=recipe)
            rank = {one.text: one.rank for one in find_outliers(texts, model, against=corpus, top=len(texts)).entries}
            return -np.array([rank[text] for text in texts])

        return score

    def density(corpus: list[str], texts: list[str]) -> Matrix:
        return -np.asarray(BertFlow.fit(corpus, encoder, recipe="flow").score_samples(texts))

    def mahalanobis(corpus: list[str], texts: list[str]) -> Matrix:
        moments = Moments().add(encoder.encode(corpus))
        centred = encoder.encode(texts) - moments.mean
        return np.einsum("nd,nd->n", centred @ np.linalg.pinv(moments.covariance()), centred)

    near = {f"10 nearest, {recipe}": neighbours(recipe) for recipe in RECIPES}
    near |= {f"bertflow outliers, {recipe}": verb(recipe) for recipe in ("whitening-half", "best")}
    return near | {"density of the flow": density, "Mahalanobis": mahalanobis}


def judged(setting: Setting, score: Callable[[list[str], list[str]], Matrix]) -> str:
    """Return AUROC and false positives."""
    scores = score(setting.corpus, [*setting.known, *setting.new])
    truth = np.arange(len(scores)) >= len(setting.known)
    false, true, _ = roc_curve(truth, scores)
    return f"{100 * roc_auc_score(truth, scores):.1f} ({100 * false[np.searchsorted(true, 0.95)]:.0f} %)"


def made(most: int, rng: np.random.Generator) -> dict[str, Setting]:
    """Return the settings by name."""
    train, test = banking("train"), banking("test")
    unknown = rng.choice(77, 26, replace=False)
    of_test = list(zip(*test, strict=True))
    intents = [text for text, label in zip(*train, strict=True) if label not in unknown]
    questions, chinese = ([*chained(pairs).texts] for pairs in (qqp_pairs(), lcqmc_pairs()))
    for texts in (questions, chinese):
        rng.shuffle(texts)
    third = most // 3
    english = Setting(questions[:most], questions[most : most + third], [])
    return {
        "unknown intents": Setting(
            intents,
            [text for text, label in of_test if label not in unknown],
            [text for text, label in of_test if label in unknown],
        ),
        "another domain": Setting(
            intents, [text for text, label in of_test if label not in unknown], questions[:third]
        ),
        "garbage": english._replace(new=garbage(questions[-300:], rng)),
        "English among Chinese": Setting(chinese[: most // 2], chinese[most // 2 :][:third], questions[:300]),
    }


def garbage(texts: list[str], rng: np.random.Generator) -> list[str]:
    """Return texts whose letters were dealt out anew, random characters, and scraps of machines' output."""
    found = []
    for number, text in enumerate(texts):
        if number % 3 == 0:
            found.append("".join(rng.permutation(list(text))))
        elif number % 3 == 1:
            found.append("".join(rng.choice(list('abcdef0123456789-/:;{}<>="%$ '), len(text))))
        else:
            words = text.split()
            found.append(
                f'<td class="c{number}">{words[0]}</td><td>{rng.integers(10**6)}</td> &nbsp; {{"id": {number}}}'
            )
    return found


if __name__ == "__main__":
    typer.run(main)
