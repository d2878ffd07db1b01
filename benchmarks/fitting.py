"""How much faster the `default` preset fits than the `paper` preset, in one run on this machine: ratios, not seconds.

python benchmarks/fitting.py
"""

from __future__ import annotations

import time

import numpy as np

from bertflow import FlowCalibrator

ROWS = 15_437  # the distinct sentences of STS-B
REPEATS = 3


def seconds(preset: str, x: np.ndarray) -> float:
    """Return the best of a few fits."""
    times = []
    for seed in range(REPEATS):
        start = time.perf_counter()
        FlowCalibrator(preset=preset, random_state=seed).fit(x)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one row for each dimension."""
    print(f"fitting a flow on {ROWS} vectors\n\n| d | paper ÷ default |\n|---|---|")
    for dim in (256, 768):
        rng = np.random.default_rng(0)
        x = (rng.standard_t(5, size=(ROWS, dim)) @ rng.normal(size=(dim, dim)) / dim**0.5).astype(np.float32)
        print(f"| {dim} | {seconds('paper', x) / seconds('default', x):.1f}× |")


if __name__ == "__main__":
    main()
