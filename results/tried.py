"""What was tried on the way to the preset `best`, on the sets it was chosen on: STS-B dev, STS12 and STS13.

    python results/tried.py [--encoder mini]

Prints a markdown table; fitted on target, one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import torch
import typer
from sklearn.base import TransformerMixin

from bertflow.arrays import Matrix
from bertflow.calibrators import BlockFlow, FlowCalibrator, Identity, Whitening
from bertflow.encoder import Encoder
from bertflow.evaluation import Task, evaluate_task, load_task
from bertflow.pooling import LayerReader
from bertflow.static import StaticEncoder

SIF = 2e-3
Make = Callable[[], TransformerMixin]


class ShrunkWhitening(TransformerMixin):
    """Whitening with a fifth of the mean eigenvalue added to all."""

    def fit(self, x: Matrix) -> ShrunkWhitening:
        """Learn mean and map."""
        values, vectors = np.linalg.eigh(np.cov(x.T))
        self.mean, self.map = x.mean(0), vectors * (np.maximum(values, 0) + 0.2 * values.mean()) ** -0.5
        return self

    def transform(self, x: Matrix) -> Matrix:
        """Map rows."""
        return (x - self.mean) @ self.map


class Views:
    """All the ways to pool one task's texts: each text is encoded once, each token once."""

    def __init__(self, encoder: Encoder, static: StaticEncoder, task: Task) -> None:
        self.encoder, self.d = encoder, encoder.dim
        self.static = static
        self.surprise = static.weighted_by(task.fit_sentences).weights
        texts = list(dict.fromkeys([*task.fit_sentences, *task.sentences]))
        self.row = {text: i for i, text in enumerate(texts)}
        self.fitted_on = [self.row[text] for text in task.fit_sentences]
        words = (static.weights > 0).astype(np.float32)
        share = np.exp(-self.surprise) * words  # surprise is −log of the share
        self.weights = {"all words": words, "a / (a + p)": words * SIF / (SIF + share), "surprise": self.surprise}
        self.texts = texts

    def static_layers(self, weights: str) -> dict[str, Matrix]:
        """Means of token vectors: embedding layer, its average with the last layer, and the last alone."""
        table = StaticEncoder(
            "", self.static.tokenizer, self.static.vectors, self.weights[weights], self.static.nothing
        )
        vectors = table.encode(self.texts)
        first, average = vectors[:, : self.d], vectors[:, self.d :]
        return {"embedding": first, "embedding-last-avg": average, "last": 2 * average - first}

    @torch.inference_mode()
    def contextual(self, weights: str | None) -> Matrix:
        """Weighted means of the hidden states of all tokens, embedding-last-avg; None: as the encoder pools."""
        if weights is None:
            return Encoder(self.encoder.name, "first-last-avg").encode(self.texts)
        weigh = torch.from_numpy(np.maximum(self.weights[weights], 1e-6).astype(np.float32))
        out = np.empty((len(self.texts), self.d), dtype=np.float32)
        with LayerReader(self.encoder.model, "embedding-last-avg") as reader:
            for batch in self.encoder._batches(self.texts):
                states = reader(batch.ids, batch.mask)
                shares = weigh[batch.ids] * batch.mask
                shares /= shares.sum(1, keepdim=True)
                out[batch.rows] = torch.einsum("nt,ntd->nd", shares, (states[0] + states[-1]) / 2).numpy()
        return out


def blocks(*weights: float) -> TransformerMixin:
    """A flow for each of several parts."""
    return BlockFlow(len(weights), weights, random_state=0)


def candidates(views: Views) -> dict[str, tuple[Matrix, Make]]:
    """Everything to be scored, by name."""

    def flow() -> TransformerMixin:
        return FlowCalibrator(preset="paper", random_state=0)

    maps: dict[str, Make] = {"raw": Identity, "whitening": Whitening, "shrunk whitening": ShrunkWhitening, "flow": flow}
    found: dict[str, tuple[Matrix, Make]] = {}
    plain = views.contextual(None)
    found |= {f"first-last-avg (the paper's), {name}": (plain, make) for name, make in maps.items()}
    for weights in views.weights:
        vectors = views.contextual(weights)
        found |= {
            f"contextual, {weights}, {name}": (vectors, maps[name]) for name in ("raw", "shrunk whitening", "flow")
        }
    for weights in views.weights:
        for layer, vectors in views.static_layers(weights).items():
            found |= {f"static {layer}, {weights}, {name}": (vectors, make) for name, make in maps.items()}
    layers = views.static_layers("surprise")
    two = np.hstack([layers["embedding"], layers["embedding-last-avg"]])
    three = np.hstack([two, views.contextual("all words")])
    surprised = np.hstack([two, views.contextual("surprise")])
    found["**static embedding + embedding-last-avg, surprise, a flow each (`static`)**"] = two, partial(blocks, 1, 1)
    found["the same, one flow for both"] = two, flow
    found["the same, and contextual, all words, a flow each"] = three, partial(blocks, 1, 1, 1)
    found["**the same, contextual counts half (`best`)**"] = three, partial(blocks, 1, 1, 0.5)
    found["the same, contextual weighted by surprise"] = surprised, partial(blocks, 1, 1, 0.5)
    return found


def main(encoder: Annotated[str, typer.Option(help="Model name or folder.")] = "mini") -> None:
    """Score all candidates and print them."""
    tasks = [load_task("STS-B", split="dev"), load_task("STS12"), load_task("STS13")]
    contextual = Encoder(encoder, device="cpu")
    static = StaticEncoder.distill(contextual)
    rows: dict[str, list[float]] = {}
    for task in tasks:
        views = Views(contextual, static, task)
        for name, (vectors, make) in candidates(views).items():
            fitted = make().fit(vectors[views.fitted_on])
            latents = fitted.transform(vectors)
            setting = "all" if len(task.subsets) == 1 else "wmean"
            score = evaluate_task(task, lambda texts: latents[[views.row[t] for t in texts]], setting, resamples=0)  # noqa: B023
            rows.setdefault(name, []).append(score.value)
    typer.echo("| | STS-B dev | STS12 | STS13 | average |\n|---|---:|---:|---:|---:|")
    for name, values in rows.items():
        typer.echo(f"| {name} | {' | '.join(f'{value:.2f}' for value in [*values, float(np.mean(values))])} |")


if __name__ == "__main__":
    typer.run(main)
