"""What was tried on the way to the preset `best`, on what it was chosen on: STS-B dev, STS12, STS13, the shipped pairs.

    python results/tried.py [--encoder mini] [--only static]

Prints a markdown table; fitted on target, one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import typer
from shared_data import use_shared_data
from sklearn.base import TransformerMixin

from bertflow.arrays import Matrix
from bertflow.calibrators import FlowCalibrator, Identity, Whitening, WhiteningBesideFlow
from bertflow.data import sample_pairs, sample_sentences
from bertflow.encoders.pooling import LayerReader
from bertflow.encoders.token_table import FEATURES, StaticEncoder, encode_alone, fourier_features, standardized_average
from bertflow.encoders.transformer import Encoder
from bertflow.evaluation import PairSet, PairTask, evaluate_task, load_task

SIF = 2e-3
Make = Callable[[], TransformerMixin]


class FlowEach(TransformerMixin):
    """A flow for each of several equal parts of the dimensions, side by side, each with its weight."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.scales = np.sqrt(weights)

    def fit(self, x: Matrix) -> FlowEach:
        """Fit them."""
        self.flows = [flow().fit(part) for part in self.cut(x)]
        return self

    def transform(self, x: Matrix) -> Matrix:
        """Map rows."""
        parts = zip(self.scales, self.flows, self.cut(x), strict=True)
        return np.hstack([scale * one.transform(part) for scale, one, part in parts])

    def cut(self, x: Matrix) -> list[Matrix]:
        """Return the parts."""
        return [np.ascontiguousarray(part) for part in np.split(x, len(self.scales), axis=1)]


def flow(**architecture: Any) -> FlowCalibrator:
    """Return the paper's flow, or one of another architecture."""
    return FlowCalibrator(preset="paper", random_state=0, **architecture)


class Views:
    """All the ways to pool one task's texts: each text is encoded once, each token once."""

    def __init__(self, encoder: Encoder, static: StaticEncoder, task: PairTask) -> None:
        self.encoder, self.static = encoder, static
        self.surprise = static.weighted_by(task.fit_sentences).weights
        texts = list(dict.fromkeys([*task.fit_sentences, *task.sentences]))
        self.row = {text: i for i, text in enumerate(texts)}
        self.fitted_on = [self.row[text] for text in task.fit_sentences]
        self.words = static.weights > 0
        words = self.words.astype(np.float32)
        share = np.exp(-self.surprise) * words  # surprise is −log of the share
        self.weights = {"all words": words, "a / (a + p)": words * SIF / (SIF + share), "surprise": self.surprise}
        self.texts = texts

    def pooled(self, table: Matrix, weights: str = "surprise") -> Matrix:
        """Weighted means (n, k) of any vectors of tokens."""
        nothing = np.zeros(table.shape[1], dtype=np.float32)
        return StaticEncoder("", self.static.tokenizer, table, self.weights[weights], nothing).encode(self.texts)

    def spread(self, table: Matrix) -> Matrix:
        """Weighted standard deviations of the vectors of a text's tokens."""
        return np.sqrt(np.maximum(self.pooled(table**2) - self.pooled(table) ** 2, 0))

    @torch.inference_mode()
    def contextual(self, weights: str) -> Matrix:
        """Weighted means of the hidden states of all tokens, embedding-last-avg."""
        weigh = torch.from_numpy(np.maximum(self.weights[weights], 1e-6).astype(np.float32))
        out = np.empty((len(self.texts), self.encoder.dim), dtype=np.float32)
        with LayerReader(self.encoder.model, "embedding-last-avg") as reader:
            for batch in self.encoder._batches(self.texts):
                states = reader(batch.ids, batch.mask)
                shares = weigh[batch.ids] * batch.mask
                shares /= shares.sum(1, keepdim=True)
                out[batch.rows] = torch.einsum("nt,ntd->nd", shares, (states[0] + states[-1]) / 2).numpy()
        return out


def candidates(views: Views, layers: dict[str, Matrix]) -> dict[str, tuple[Matrix, Make]]:
    """Everything to be scored, by name."""
    fifth, half = partial(Whitening, shrinkage=1 / 6), partial(Whitening, shrinkage=0.5)
    maps: dict[str, Make] = {"raw": Identity, "whitening": Whitening, "shrunk whitening": fifth, "flow": flow}
    found: dict[str, tuple[Matrix, Make]] = {}
    plain, of_words = views.encoder.encode_views(views.texts, [("first-last-avg", False), ("first-last-avg", True)])
    found |= {f"first-last-avg (the paper's), {name}": (plain, make) for name, make in maps.items()}
    found |= {
        f"first-last-avg of words, {name}": (of_words, maps[name]) for name in ("raw", "shrunk whitening", "flow")
    }
    for weights in views.weights:
        vectors = views.contextual(weights)
        found |= {
            f"contextual, {weights}, {name}": (vectors, maps[name]) for name in ("raw", "shrunk whitening", "flow")
        }
    contextual = found["contextual, all words, flow"][0]
    for coupling, permutation in (("affine", "reverse"), ("additive", "linear"), ("affine", "linear")):
        make = partial(flow, coupling=coupling, permutation=permutation)
        found[f"contextual, all words, flow: {coupling} couplings, {permutation} permutations"] = contextual, make
    for width in (16, 64, 128):
        found[f"contextual, all words, flow: {width} hidden units instead of 32"] = (
            contextual,
            partial(flow, width=width),
        )
    for weights in views.weights:
        for layer, table in layers.items():
            vectors = views.pooled(table, weights)
            found |= {f"static {layer}, {weights}, {name}": (vectors, make) for name, make in maps.items()}
    average = layers["embedding-last-avg"]
    two = np.hstack([views.pooled(layers["embedding"]), views.pooled(average)])
    found["static embedding + embedding-last-avg, surprise, a flow each"] = two, partial(FlowEach, (1, 1))
    found["the same, one flow for both"] = two, flow
    three = np.hstack([two, contextual])
    found["the same, and contextual, all words, a flow each"] = three, partial(FlowEach, (1, 1, 1))
    found["the same, contextual counts half"] = three, partial(FlowEach, (1, 1, 0.5))
    found["standard deviations of embedding-last-avg, surprise, shrunk whitening"] = views.spread(average), fifth
    bag = np.random.default_rng(0).standard_normal((len(average), FEATURES)).astype(np.float32)
    found["random vectors for tokens (no model at all), surprise, whitening shrunk by half"] = views.pooled(bag), half
    kernel = {count: fourier_features(average, views.words, 0, count) for count in (256, 512, FEATURES, 2048)}
    for count, table in kernel.items():
        found[f"{count} features of embedding-last-avg, surprise, whitening shrunk by half"] = views.pooled(table), half
    found["the same with 1024, plain whitening"] = views.pooled(kernel[FEATURES]), Whitening
    found["the same with 1024, flow"] = views.pooled(kernel[FEATURES]), flow
    for layer in ("embedding", "last"):
        table = fourier_features(layers[layer], views.words, 0)
        found[f"1024 features of {layer}, surprise, whitening shrunk by half"] = views.pooled(table), half
    for width in (0.7, 1.4):
        table = fourier_features(average, views.words, 0, width=width)
        found[f"1024 features, kernel {width} times as wide, whitening shrunk by half"] = views.pooled(table), half
    beside = {"contextual, all words": contextual, "contextual, surprise": found["contextual, surprise, flow"][0]}
    beside |= {"first-last-avg": plain}
    for name, vectors in beside.items():
        for weight in (0.2, 0.3, 0.5, 0.7, 1.0, 2.0) if vectors is contextual else (0.5, 1.0):
            title = f"1024 features, whitening shrunk by half, beside {name}, flow, counting {weight}"
            found[title] = joined(views.pooled(kernel[FEATURES]), vectors, weight)
    even = views.pooled(fourier_features(layers["both, standardised"], views.words, 0))
    found["**1024 features of both layers, standardised (`static`)**"] = even, half
    for name, vectors in (beside | {"first-last-avg of words": of_words}).items():
        for weight in (0.5, 1.0, 2.0):
            chosen = vectors is of_words and weight == 1
            title = f"the same beside {name}, flow, counting {weight}"
            found[f"**{title} (`best`)**" if chosen else title] = joined(even, vectors, weight)
    return found


def joined(static: Matrix, contextual: Matrix, weight: float) -> tuple[Matrix, Make]:
    """Two encodings side by side, and the calibrator for them."""
    make = partial(WhiteningBesideFlow, contextual.shape[1], shrinkage=0.5, flow_weight=weight, random_state=0)
    return np.hstack([static, contextual]), make


def shipped_pairs() -> PairTask:
    """Return the pairs that ship with bertflow, fitted on the sentences that do."""
    pairs = sample_pairs()
    firsts, seconds = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    gold = np.array([pair.score for pair in pairs])
    return PairTask("shipped pairs", "spearman", {"all": PairSet(firsts, seconds, gold)}, sample_sentences())


def main(
    encoder: Annotated[str, typer.Option(help="Model name or folder.")] = "mini",
    only: Annotated[list[str], typer.Option(help="Only candidates whose name has this in it.")] = [],  # noqa: B006
) -> None:
    """Score all candidates and print them."""
    tasks = [load_task("STS-B", split="dev"), load_task("STS12"), load_task("STS13"), shipped_pairs()]
    contextual = Encoder(encoder, device="cpu")
    static = StaticEncoder.distill(contextual)
    alone = encode_alone(contextual, range(len(static.vectors)))
    layers = {"embedding": alone[0], "embedding-last-avg": alone.mean(axis=0), "last": alone[1]}
    layers["both, standardised"] = standardized_average(alone, static.weights > 0)
    rows: dict[str, list[float]] = {}
    for task in tasks:
        views = Views(contextual, static, task)
        for name, (vectors, make) in candidates(views, layers).items():
            if only and not any(part in name for part in only):
                continue
            fitted = make().fit(vectors[views.fitted_on])
            latents = fitted.transform(vectors)
            setting = "all" if len(task.subsets) == 1 else "wmean"
            score = evaluate_task(task, lambda texts: latents[[views.row[t] for t in texts]], setting, resamples=0)  # noqa: B023
            rows.setdefault(name, []).append(score.value)
    typer.echo("| | STS-B dev | STS12 | STS13 | average of these | shipped pairs |\n|---|---:|---:|---:|---:|---:|")
    for name, (*three, pairs) in rows.items():
        typer.echo(f"| {name} | {' | '.join(f'{value:.2f}' for value in [*three, float(np.mean(three)), pairs])} |")


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
