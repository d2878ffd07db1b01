"""What one CPU thread does in a second, step by step: the rates that docs/scale.md multiplies.

python benchmarks/rates.py

CPU time, so that other work on the machine counts little; the best of a few turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import typer
from encoding import mixes
from peers import correlated, in_turns
from threadpoolctl import threadpool_limits

from bertflow import Encoder, FlowCalibrator, Whitening
from bertflow.moments import Moments


def steps(rows: int, dim: int, texts: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Return by name what is timed, and on how many rows."""
    x = correlated(rows, dim).numpy()
    mix, sentences = next(iter(mixes(texts).items()))
    encoder = Encoder("mini", device="cpu")
    flow = FlowCalibrator(random_state=0, device="cpu")
    applied = FlowCalibrator(epochs=0.1, random_state=0, device="cpu").fit(x[:20_000])
    whitening = Whitening().fit(x[:20_000])
    return {
        f"encode with mini, {mix}": (len(sentences), partial(encoder.encode, sentences)),
        "moments, for whitening": (rows, lambda: Moments().add(x)),
        "fit a flow, preset default": (rows, partial(flow.fit, x)),
        "apply a flow": (rows, partial(applied.transform, x)),
        "apply whitening": (rows, partial(whitening.transform, x)),
    }


def main(
    rows: Annotated[int, typer.Option(help="Vectors.")] = 100_000,
    dim: Annotated[int, typer.Option(help="Their dimensions.")] = 768,
    texts: Annotated[int, typer.Option(help="Texts to encode.")] = 2000,
    repeats: Annotated[int, typer.Option(help="Turns of each step.")] = 3,
) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        timed = steps(rows, dim, texts)
        seconds = in_turns({name: run for name, (_, run) in timed.items()}, repeats, "cpu", cpu_time=True)
    print(f"One CPU thread, torch {torch.__version__}, d = {dim}\n\n| step | a second |\n|---|---:|")
    for name, (count, _) in timed.items():
        print(f"| {name} | {count / min(seconds[name]):,.0f} |")


if __name__ == "__main__":
    typer.run(main)
