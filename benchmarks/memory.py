"""Peak memory of embedding, fitting and calibrating 0.5 to 5 million rows at d = 256: it must not grow with the rows.

python benchmarks/memory.py

Each step runs in a process of its own, whose peak resident set is read at its end. The encoder is a stand-in that draws
vectors from a hash of the text, since a real one would take hours; all else is what users run. Needs 6 GB of disk.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS = (500_000, 1_000_000, 2_000_000, 5_000_000)
DIM = 256


class HashEncoder:
    """Vectors that follow from each text's checksum: the sum of two rows of a fixed random table."""

    name, dim, fingerprint = "hash", DIM, "hash-1"

    def __init__(self) -> None:
        import numpy as np

        self._table = np.random.default_rng(0).normal(size=(4096, DIM)).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """Return what names it."""
        return {"kind": "hash", "name": self.name, "dim": DIM, "fingerprint": self.fingerprint}

    def encode(self, sentences: list[str], *, show_progress_bar: bool = False) -> Any:
        """Map n texts to (n, d)."""
        import numpy as np

        sums = np.fromiter((zlib.crc32(text.encode()) for text in sentences), np.int64, len(sentences))
        return self._table[sums % 4096] + 0.5 * self._table[sums // 4096 % 4096]


def embed(room: Path) -> None:
    """Text to raw shards."""
    from bertflow.scale import write_shards

    write_shards(room / "corpus.txt", HashEncoder(), room / "raw")


def fit_flow(room: Path) -> None:
    """Fit a flow on the default sample of the shards; a part of an epoch, since more would only repeat the same steps."""
    from bertflow import FlowCalibrator
    from bertflow.scale import fit_shards
    from bertflow.storage.shards import Shards

    fit_shards(Shards(room / "raw"), FlowCalibrator(epochs=0.2, random_state=0, device="cpu"))


def fit_flow_on_all(room: Path) -> None:
    """Fit a flow in a pass over all rows, block by block; with few steps a block, for the same reason."""
    from bertflow import FlowCalibrator
    from bertflow.scale import fit_shards
    from bertflow.storage.shards import Shards

    fit_shards(Shards(room / "raw"), FlowCalibrator(epochs=0.01, random_state=0, device="cpu"), rows=None)


def fit_whitening(room: Path) -> None:
    """Fit whitening on all rows, and save it."""
    from bertflow import Whitening
    from bertflow.scale import fit_shards
    from bertflow.storage.model_folder import save_calibrator
    from bertflow.storage.shards import Shards

    save_calibrator(fit_shards(Shards(room / "raw"), Whitening())[0], room / "whitening")


def transform(room: Path) -> None:
    """Raw shards to calibrated ones."""
    from bertflow.scale import transform_shards
    from bertflow.storage.model_folder import load_calibrator
    from bertflow.storage.shards import Shards

    transform_shards(Shards(room / "raw"), load_calibrator(room / "whitening"), room / "calibrated")


STEPS: dict[str, Callable[[Path], None]] = {
    "embed": embed,
    "fit a flow (sample)": fit_flow,
    "fit a flow (all rows)": fit_flow_on_all,
    "fit whitening (all rows)": fit_whitening,
    "transform": transform,
}


def peak_of(step: str, room: Path) -> float:
    """Run a step in a fresh process; return its peak memory in MB."""
    command = [sys.executable, __file__, step, str(room)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(rows: int) -> list[float]:
    """Return the peaks of all steps on a made-up corpus."""
    with tempfile.TemporaryDirectory(prefix="bertflow-memory-") as name:
        room = Path(name)
        with (room / "corpus.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"Sentence number {i} speaks of nothing but its number.\n" for i in range(rows))
        return [peak_of(step, room) for step in STEPS]


def main() -> None:
    """Print the curve, as Markdown."""
    print(f"peak memory in MB, d = {DIM}\n\n| rows | {' | '.join(STEPS)} |")
    print("|---:" * (len(STEPS) + 1) + "|", flush=True)
    curve = []
    for rows in ROWS:
        curve.append(measure(rows))
        print(f"| {rows:,} | {' | '.join(f'{peak:.0f}' for peak in curve[-1])} |", flush=True)
    ratios = [f"{last / first:.2f}×" for first, last in zip(curve[0], curve[-1], strict=True)]
    print(f"| {ROWS[-1] // ROWS[0]}× the rows | {' | '.join(ratios)} |")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        STEPS[sys.argv[1]](Path(sys.argv[2]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(peak / 2**20 if sys.platform == "darwin" else peak / 2**10)
    else:
        main()
