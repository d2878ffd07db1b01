"""Throughput of `Encoder.encode` against `SentenceTransformer.encode` on the same weights, text and cores, as a ratio.

python benchmarks/encoding.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from bertflow import Encoder
from bertflow.data import mini_folder, sample_pairs, sample_sentences

REPEATS = 3


def best(encode: Callable[[list[str]], np.ndarray], texts: list[str]) -> tuple[float, np.ndarray]:
    """Return the best time of a few runs, and the vectors."""
    times, vectors = [], np.empty(0)
    for _ in range(REPEATS):
        start = time.perf_counter()
        vectors = encode(texts)
        times.append(time.perf_counter() - start)
    return min(times), vectors


def main() -> None:
    """Print the ratio and how far the vectors are apart."""
    pairs = sample_pairs()
    texts = [*sample_sentences(), *(pair.sentence1 for pair in pairs), *(pair.sentence2 for pair in pairs)]
    transformer = Transformer(str(mini_folder()), model_kwargs={"dtype": "float32"})
    peer = SentenceTransformer(modules=[transformer, Pooling(256, "mean")], device="cpu")
    theirs, expected = best(lambda batch: peer.encode(batch, show_progress_bar=False), texts)
    ours, vectors = best(Encoder("mini", "mean", device="cpu").encode, texts)
    difference = np.abs(vectors - expected).max()
    print(f"encoding {len(texts)} sentences with mini\n\n| peer | ours ÷ peer | largest difference |\n|---|---|---|")
    print(f"| SentenceTransformer.encode | {theirs / ours:.2f}× | {difference:.1e} |")


if __name__ == "__main__":
    main()
