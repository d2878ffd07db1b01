"""Does the cut-off without labels hold? Expected and found pairs of unrelated texts, at thresholds fitted without labels.

    python results/thresholds.py --encoder mini --judge all-MiniLM-L6-v2 > results/thresholds.md

One half of the texts fits the recipe; the law of cosines is fitted to random pairs of the other half, and its thresholds are
tried on all pairs of that half. Unrelated are: questions of other intents (Banking77), definitions of other entities (PARADE),
documents that nobody retrieved for a query (CISI, DBpedia), and questions (QQP) that are in no chain of labelled pairs and to
which another encoder, tuned with labels, gives a cosine below 0.2: most of the nearest pairs of QQP are unlabelled duplicates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from corpora import Labelled, Search, banking, chained, lcqmc_pairs, parade, qqp_pairs, search

from bertflow import BertFlow, Encoder
from bertflow.arrays import Matrix
from bertflow.corpus import Significance
from bertflow.corpus.vectors import unit_vectors
from bertflow.recipes import readings
from bertflow.storage.remembering import Remembering

RECIPES = "raw", "whitening", "whitening-half", "static", "best"
EXPECTED = 10, 100, 1000
BINS = 20_000  # of cosines from -1 to 1
ROWS = 1000
UNRELATED = 0.2  # the judge's cosine below which two texts are not about the same

Counts = npt.NDArray[np.int64]


class Found(NamedTuple):
    """Cosines of pairs, counted in bins: unrelated and related ones, and the law that was fitted without labels."""

    unrelated: Counts
    related: Counts
    significance: Significance
    query: bool

    def above(self, threshold: float) -> tuple[float, float]:
        """Return how many unrelated and related pairs reach a threshold."""
        start = int(np.ceil((threshold + 1) / 2 * BINS))
        return float(self.unrelated[start:].sum()), float(self.related[start:].sum())

    def threshold(self, expected: float) -> float:
        """Return the threshold that so many unrelated pairs are expected to reach."""
        return self.significance.threshold_of_share(expected / self.unrelated.sum(), query=self.query)

    def f1(self) -> tuple[float, float, float]:
        """Return the best F1 that a threshold can have, with its precision and recall: an oracle's."""
        false, true = (np.cumsum(one[::-1])[::-1] for one in (self.unrelated, self.related))
        f1 = 2 * true / np.maximum(true + false + self.related.sum(), 1)
        best = int(np.argmax(f1))
        return float(f1[best]), *ratios(false[best], true[best], self.related.sum())


def main(
    encoder: Annotated[list[str], typer.Option(help="Model name or folder.")] = ["mini"],  # noqa: B006
    judge: Annotated[
        str | None, typer.Option(help="An encoder tuned with labels; without one QQP is left out.")
    ] = None,
    halves: Annotated[int, typer.Option(help="Random halves to average over.")] = 20,
    only: Annotated[list[str], typer.Option(help="Recipes; default: all.")] = list(RECIPES),  # noqa: B006
    chinese: Annotated[bool, typer.Option(help="LCQMC instead of the English sets.")] = False,
) -> None:
    """Print a table for each encoder."""
    typer.echo("# A cut-off without labels\n\n" + (__doc__ or "").split("\n\n", 2)[2])
    typer.echo(
        f"Means over {halves} random halves; factor: how far they are from what was expected, at its worst of the three."
    )
    sets: dict[str, Labelled | Search] = (
        {"LCQMC": chained(lcqmc_pairs())}
        if chinese
        else {"Banking77": banking(), "PARADE": parade(), "CISI": search("cisi"), "DBpedia": search("dbpedia")}
    )
    judges: dict[str, Matrix] = {}
    if judge and not chinese:
        sets["QQP"] = chained(qqp_pairs()[:4000])
        judges["QQP"] = unit_vectors(sets["QQP"].texts, Remembering(Encoder(judge, "mean")))
    for name in encoder:
        titles = (
            "recipe",
            "texts",
            *(f"found of {e}" for e in EXPECTED),
            "factor",
            "precision, recall at 100",
            "an oracle's",
        )
        typer.echo(f"\n## {Path(name).name}\n\n| {' | '.join(titles)} |\n|---|---{'|---:' * (len(titles) - 2)}|")
        plain = Encoder(name)
        known = Remembering(plain, readings(only, plain))
        factors: dict[str, list[float]] = {recipe: [] for recipe in only}
        for recipe in only:
            for title, texts in sets.items():
                runs = [tried(texts, known, recipe, seed, judges.get(title)) for seed in range(halves)]
                typer.echo(f"| {recipe} | {title} | {row(runs, factors[recipe])} |")
        typer.echo("\n| recipe | median factor | worst |\n|---|---:|---:|")
        for recipe, all_of_it in factors.items():
            typer.echo(f"| {recipe} | {np.median(all_of_it):.1f} | {max(all_of_it):.1f} |")


def row(runs: list[Found], factors: list[float]) -> str:
    """Return the cells of one recipe on one set of texts; its factors are added to ``factors``."""
    means = [np.mean([run.above(run.threshold(expected))[0] for run in runs]) for expected in EXPECTED]
    here = [max(mean / expected, expected / max(mean, 1e-9)) for mean, expected in zip(means, EXPECTED, strict=True)]
    factors += here
    at = np.mean([ratios(*run.above(run.threshold(100)), run.related.sum()) for run in runs], axis=0)
    oracle = np.mean([run.f1() for run in runs], axis=0)[1:]
    cells = [*(f"{mean:.0f}" for mean in means), f"{max(here):.1f}"]
    return " | ".join([*cells, *(f"{100 * one[0]:.0f}, {100 * one[1]:.0f}" for one in (at, oracle))])


def ratios(false: float, true: float, related: float) -> tuple[float, float]:
    """Return precision and recall."""
    return float(true / max(true + false, 1)), float(true / max(related, 1))


def tried(texts: Labelled | Search, encoder: Remembering, recipe: str, seed: int, judge: Matrix | None) -> Found:
    """Fit on one half, count pairs of the other."""
    rng = np.random.default_rng(seed)
    if isinstance(texts, Search):
        return tried_search(texts, encoder, recipe, rng)
    seen, held = np.array_split(rng.permutation(len(texts.texts)), 2)
    model = BertFlow.fit([texts.texts[i] for i in seen], encoder, recipe=recipe, random_state=0)
    rows = unit_vectors([texts.texts[i] for i in held], model)
    labels = texts.labels[held]
    related, unrelated = np.zeros(BINS + 1, dtype=np.int64), np.zeros(BINS + 1, dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        later = np.arange(len(rows)) > np.arange(len(rows))[part, None]
        same = labels[part, None] == labels
        apart = ~same if judge is None else ~same & (judge[held[part]] @ judge[held].T < UNRELATED)
        cosines = rows[part] @ rows.T
        related += binned(cosines[same & later])
        unrelated += binned(cosines[apart & later])
    return Found(unrelated, related, Significance.fit(rows, random_state=seed), query=False)


def tried_search(texts: Search, encoder: Remembering, recipe: str, rng: np.random.Generator) -> Found:
    """Fit on half the documents and queries, count pairs of a query and a document of the other halves."""
    halves = [np.array_split(rng.permutation(len(side)), 2) for side in (texts.documents, texts.queries)]
    sides = [[texts.documents[i] for i in halves[0][k]] + [texts.queries[i] for i in halves[1][k]] for k in (0, 1)]
    model = BertFlow.fit(sides[0], encoder, recipe=recipe, random_state=0)
    rows = unit_vectors(sides[1], model)
    held = len(halves[0][1])
    documents, queries = rows[:held], rows[held:]
    place = {int(document): column for column, document in enumerate(halves[0][1])}
    relevant, judged = np.zeros((2, len(queries), held), dtype=bool)
    for number, query in enumerate(halves[1][1].tolist()):
        for table, pairs in ((relevant, texts.relevant), (judged, texts.judged)):
            table[number, [place[document] for asked, document in pairs if asked == query and document in place]] = True
    cosines = queries @ documents.T
    significance = Significance.fit(documents, queries=queries)
    return Found(binned(cosines[~judged]), binned(cosines[relevant]), significance, query=True)


def binned(cosines: Matrix) -> Counts:
    """Count cosines in bins."""
    return np.bincount(((np.clip(cosines, -1, 1) + 1) / 2 * BINS).astype(np.int64), minlength=BINS + 1)


if __name__ == "__main__":
    typer.run(main)
