"""From a cold start to the first vector, each in a process of its own: ours against `import torch` and model2vec.

    pip install model2vec
    python benchmarks/cold_start.py

All take turns in one run. A table gives the median, with the lowest and the highest, and each as a share of the two peers'.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import typer

OURS = "from bertflow import BertFlow; BertFlow.from_pretrained({!r}).encode('One sentence.')"
THEIRS = "from model2vec import StaticModel; StaticModel.from_pretrained({!r}).encode(['One sentence.'])"
TORCH, MODEL2VEC = "import torch", "model2vec, 256-d"


def contenders(folder: Path) -> dict[str, str]:
    """Return by name the code that each process runs; models are fitted in this one."""
    import numpy as np
    from model2vec import StaticModel

    from bertflow import BertFlow
    from bertflow.data import sample_sentences

    for recipe in ("static", "static-256", "best"):
        model = BertFlow.fit(sample_sentences(), "mini", recipe=recipe, device="cpu")
        model.save_pretrained(folder / recipe)
    table = BertFlow.from_pretrained(folder / "static-256", runtime="torch").parts[0]
    rows = table.calibrator.transform(table.view.vectors).astype(np.float16)
    StaticModel(rows, table.view.tokenizer).save_pretrained(folder / "model2vec")
    names = {name: str(folder / name) for name in ("static", "static-256", "best")} | {"mini-flow": "mini-flow"}
    ours = {name: OURS.format(place) for name, place in names.items()}
    return {
        TORCH: "import torch",
        MODEL2VEC: THEIRS.format(str(folder / "model2vec")),
        "import numpy": "import numpy",
        **ours,
    }


def main(repeats: int = 5) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as scratch:
        code = contenders(Path(scratch))
        seconds: dict[str, list[float]] = {name: [] for name in code}
        for turn in range(repeats + 1):
            for name, program in code.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", program], check=True)
                if turn:  # the first warms the disk's cache
                    seconds[name].append(time.perf_counter() - start)
    print("| | seconds | ÷ import torch | ÷ model2vec |\n|---|---:|---:|---:|")
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        spread = f"{middle[name]:.2f} ({min(values):.2f}–{max(values):.2f})"
        print(f"| {name} | {spread} | {middle[name] / middle[TORCH]:.2f} | {middle[name] / middle[MODEL2VEC]:.2f} |")


if __name__ == "__main__":
    typer.run(main)
