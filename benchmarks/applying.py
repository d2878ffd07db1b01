"""How fast a fitted flow maps vectors to latents, against the port's way of computing, normflows and nflows.

python benchmarks/applying.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
import typer
from peers import correlated, in_turns, peers, ratio
from port import PortFlow
from threadpoolctl import threadpool_limits
from torch import Tensor

from bertflow import FlowCalibrator
from bertflow.flows import fold
from bertflow.runtime.portable import PortableCalibrator

OURS = "bertflow, folded"


def contenders(x: Tensor, chunk: int) -> dict[str, Callable[[], object]]:
    """Return by name what maps all rows, ours first."""
    device, array = x.device.type, x.cpu().numpy()
    calibrator = FlowCalibrator(epochs=0.1, random_state=0, device=device).fit(array[:2048])
    portable = PortableCalibrator(*calibrator.get_state())
    flow, folded, port = calibrator.flow_, fold(calibrator.flow_), PortFlow(x.shape[1]).to(device)
    difference = np.abs(calibrator.transform(array[:512]) - flow(x[:512])[0].detach().cpu().numpy()).max()
    print(f"\nfolded and plain latents differ by at most {difference:.1e}")
    maps = {
        OURS: folded,
        "bertflow, layer by layer": lambda rows: flow(rows)[0],
        "the port (stand-in)": lambda rows: port(rows)[0],
    } | {name: latents for name, (_, _, latents) in peers(x.shape[1], device).items()}
    found = {name: _chunked(function, x, chunk) for name, function in maps.items()}
    whole = {"FlowCalibrator.transform, numpy to numpy": lambda: calibrator.transform(array)}
    return found | whole | {"bertflow.runtime.portable, numpy alone, one thread": lambda: portable.transform(array)}


def _chunked(function: Callable[[Tensor], Tensor], x: Tensor, chunk: int) -> Callable[[], object]:
    def run() -> None:
        for rows in x.split(chunk):
            function(rows)

    return run


def main(
    dim: Annotated[list[int], typer.Option(help="Dimensions.")] = [256, 768],  # noqa: B006
    rows: Annotated[int, typer.Option(help="Vectors.")] = 8192,
    chunk: Annotated[int, typer.Option(help="Vectors at once; 0: 512, or 16384 on a GPU.")] = 0,
    repeats: Annotated[int, typer.Option(help="Turns of each contender.")] = 7,
    threads: Annotated[int, typer.Option(help="CPU threads; 0: as torch likes.")] = 0,
    device: Annotated[str, typer.Option(help="Default: cuda where there is one.")] = "",
    cpu_time: Annotated[bool, typer.Option(help="CPU seconds, for one thread on a busy machine.")] = False,
) -> None:
    """Print one table for each dimension."""
    if threads:
        torch.set_num_threads(threads)
    threadpool_limits(1, "blas")  # numpy's threads spin on after their work, and would slow down who comes next
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    chunk = chunk or (512 if device == "cpu" else 16_384)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; median of {repeats} turns (lowest–highest ratio)"
    )
    for d in dim:
        runs = contenders(correlated(rows, d).to(device), chunk)
        with torch.no_grad():
            seconds = in_turns(runs, repeats, device, cpu_time)
        print(f"\n{rows} rows, d = {d}, {chunk} at once, {device}\n\n| | rows/s | times ours |\n|---|---|---|")
        for name, values in seconds.items():
            print(f"| {name} | {rows / statistics.median(values):,.0f} | {ratio(values, seconds[OURS])} |")


if __name__ == "__main__":
    typer.run(main)
