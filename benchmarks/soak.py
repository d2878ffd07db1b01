"""Half an hour of mixed use in one process: memory must stay flat, and every answer the same.

python benchmarks/soak.py [MINUTES]

Each round encodes new and known texts, compares, saves and loads a model, writes and reads vectors and shards, fits a small
calibrator, and asks for things that are refused. The resident memory is printed once a minute; the figure is how much the
second half of the run is above the first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np

from bertflow import BertFlow, BertflowError, Encoder, Whitening
from bertflow.data import sample_sentences
from bertflow.scale import write_shards
from bertflow.storage.shards import Shards
from bertflow.storage.vector_cache import CachedEncoder
from bertflow.storage.vector_files import read_vectors, write_vectors

MINUTES = 30.0
CLOSE = 1e-4  # relative: a model and the same one saved and loaded, whose last bits follow how memory is aligned


def resident() -> float:
    """Megabytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def one_round(number: int, model: BertFlow, encoder: Encoder, room: Path, texts: list[str]) -> None:
    """Use everything once; raise where an answer is not the one that was given before."""
    fresh = [f"{text} ({number})" for text in texts[:50]]
    known = model.encode(texts[:50])
    model.encode(fresh)
    model.similarity(texts[0], texts[1])
    loaded = BertFlow.from_pretrained(model.save_pretrained(room / "model"), device="cpu")
    write_vectors(room / "v.npy", known)
    write_shards(texts[:100], encoder, room / f"shards-{number % 3}", shard_rows=30)
    Whitening().fit(Shards(room / f"shards-{number % 3}").rows(0, 100))
    CachedEncoder(encoder.encode, "soak", room / "cache").encode(fresh[:2] + texts[:20])
    apart = float(np.abs(loaded.encode(texts[:50]) - known).max() / np.abs(known).max())
    if apart > CLOSE or not np.array_equal(read_vectors(room / "v.npy"), known):
        raise SystemExit(f"Round {number}: another answer than before, {apart:.1e} apart.")
    for refused in ([], [None], "nowhere"):
        with suppress(BertflowError):
            BertFlow.from_pretrained(refused) if isinstance(refused, str) else model.encode(refused)


def minutes(limit: float) -> Iterator[tuple[float, float, int]]:
    """Yield (minute, megabytes, rounds so far), once a minute."""
    texts, encoder = sample_sentences()[:400], Encoder("mini", device="cpu")
    model = BertFlow.fit(texts, encoder, recipe="best")
    began, said = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as room:
        for number in count(1):
            one_round(number, model, encoder, Path(room), texts)
            passed = (time.monotonic() - began) / 60
            if passed >= said + 1:
                said = passed
                yield passed, resident(), number
            if passed >= limit:
                return


def main() -> None:
    """Print a line a minute, and the figure."""
    seen = []
    for passed, megabytes, rounds in minutes(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES):
        seen.append(megabytes)
        print(f"{passed:5.1f} min  {megabytes:7.1f} MB  {rounds} rounds", flush=True)
    half = len(seen) // 2
    first, second = np.mean(seen[1:half]), np.mean(seen[half:])
    print(
        f"{rounds} rounds in {passed:.0f} minutes; memory {first:.0f} MB, then {second:.0f} MB ({second - first:+.1f} MB)"
    )


if __name__ == "__main__":
    main()
