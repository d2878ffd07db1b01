"""Groups of texts: ours, KMeans on raw vectors, and BERTopic's pipeline on the same encoder, by their agreement with labels.

    pip install umap-learn        # for BERTopic's pipeline: UMAP to 5 dimensions, then HDBSCAN, with its settings
    python results/clusters.py [--encoder mini …] > results/clusters.md

On Banking77 (77 intents), without labels; means over seeds. V-measure and adjusted Rand index ×100. Texts that HDBSCAN calls
noise go to the group whose centre is nearest, as BERTopic's `reduce_outliers` does, since the others have no noise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from corpora import banking
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, v_measure_score

from bertflow import BertFlow, Encoder
from bertflow.arrays import Matrix, unit_rows
from bertflow.corpus import find_clusters
from bertflow.recipes import readings
from bertflow.storage.remembering import Remembering

RECIPES = "raw", "whitening-half", "static", "best"


def main(
    encoder: Annotated[list[str], typer.Option(help="Model name or folder.")] = ["mini"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Of all that is random.")] = 3,
) -> None:
    """Print a table for each encoder."""
    texts, labels = banking()
    typer.echo(f"# Groups of texts\n\n{(__doc__ or '').split(chr(10) * 2, 2)[2]}")
    for name in encoder:
        plain = Encoder(name)
        known = Remembering(plain, readings(RECIPES, plain))
        typer.echo(f"\n## {Path(name).name}\n\n| | groups | V-measure | Rand |\n|---|---:|---:|---:|")
        rows: dict[str, Callable[[int], Any]] = {}
        for recipe in RECIPES:
            vectors = BertFlow.fit(texts, known, recipe=recipe).encode(texts)
            rows[f"KMeans, k = 77, {recipe}"] = lambda seed, x=vectors: KMeans(
                77, n_init=3, random_state=seed
            ).fit_predict(x)
            for k in (77, None):
                title = f"bertflow cluster, {'k found' if k is None else f'k = {k}'}, {recipe}"
                rows[title] = lambda seed, x=vectors, k=k: (
                    find_clusters(texts, vectors=x, k=k, random_state=seed).labels
                )
            if recipe in ("raw", "best"):
                rows[f"UMAP and HDBSCAN, {recipe}"] = lambda seed, x=vectors: bertopic(x, seed)
        for title, find in rows.items():
            found = [np.asarray(find(seed)) for seed in range(seeds)]
            scores = [[100 * score(labels, one) for one in found] for score in (v_measure_score, adjusted_rand_score)]
            count = np.mean([len(np.unique(one)) for one in found])
            typer.echo(f"| {title} | {count:.0f} | {np.mean(scores[0]):.1f} | {np.mean(scores[1]):.1f} |")


def bertopic(vectors: Matrix, seed: int) -> Any:
    """Return the groups of BERTopic's defaults."""
    from umap import UMAP

    flat = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=seed).fit_transform(vectors)
    found = HDBSCAN(min_cluster_size=10, copy=True).fit_predict(flat)
    rows = unit_rows(vectors)
    centres = unit_rows(np.stack([rows[found == one].mean(0) for one in range(found.max() + 1)]))
    return np.where(found < 0, np.argmax(rows @ centres.T, axis=1), found)


if __name__ == "__main__":
    typer.run(main)
