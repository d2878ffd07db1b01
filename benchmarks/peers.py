"""Other flow libraries with the paper's architecture, and how contenders are timed: in turns, in one run.

pip install normflows nflows

What differs from ours: normflows and nflows have no actnorm inside the couplings' networks and no factor 3 in their
scales; normflows swaps the halves where we reverse. Both are stepped with gradient clipping and torch's AdamW, as their
users do. A library that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

LEVELS, DEPTH, WIDTH = 3, 3, 32

Contender = Callable[[Tensor], object]


def peers(dim: int, device: str) -> dict[str, tuple[nn.Module, Contender, Contender]]:
    """Return by name each installed library's flow, its loss of rows (n, d), and its map to latents."""
    builders = {"normflows": _normflows, "nflows": _nflows}
    return {name: build(dim, device) for name, build in builders.items() if importlib.util.find_spec(name)}


def _normflows(dim: int, device: str) -> tuple[nn.Module, Contender, Contender]:
    import normflows as nf

    def level(d: int) -> list[nn.Module]:  # written from latents to data
        nets = [nf.nets.MLP([d // 2, WIDTH, WIDTH, d - d // 2], init_zeros=True) for _ in range(DEPTH)]
        parts = [
            (nf.flows.AffineCouplingBlock(net, scale=False), nf.flows.Permute(d, mode="swap"), nf.flows.ActNorm(d))
            for net in nets
        ]
        return [layer for part in parts for layer in part]

    dims = [dim >> i for i in reversed(range(LEVELS))]
    bases = [nf.distributions.DiagGaussian(d, trainable=False) for d in (dims[0], *dims[:-1])]
    merges = [nf.flows.Merge() for _ in dims[1:]]
    flow = nf.MultiscaleFlow(bases, [level(d) for d in dims], merges, class_cond=False).to(device)

    def loss(x: Tensor) -> Tensor:  # its own forward_kld cannot begin with an actnorm on vectors (1.7.3)
        latents, log_det = flow.inverse_and_log_det(x)
        return -(log_det + sum(base.log_prob(z) for base, z in zip(bases, latents, strict=True))).mean()

    return flow, loss, lambda x: torch.cat(flow.inverse_and_log_det(x)[0], dim=1)


def _nflows(dim: int, device: str) -> tuple[nn.Module, Contender, Contender]:
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        ActNorm,
        AdditiveCouplingTransform,
        CompositeTransform,
        MultiscaleCompositeTransform,
        ReversePermutation,
    )

    class Net(nn.Sequential):
        def __init__(self, inputs: int, outputs: int) -> None:
            last = nn.Linear(WIDTH, outputs)
            nn.init.zeros_(last.weight)
            super().__init__(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), last)

        def forward(self, x: Tensor, context: object = None) -> Tensor:
            return super().forward(x)

    transform = MultiscaleCompositeTransform(LEVELS)
    for d in (dim >> i for i in range(LEVELS)):
        mask = torch.arange(d) >= d // 2
        steps = [(ActNorm(d), ReversePermutation(d), AdditiveCouplingTransform(mask, Net)) for _ in range(DEPTH)]
        transform.add_transform(CompositeTransform([layer for step in steps for layer in step]), (d,))
    flow = Flow(transform, StandardNormal([dim])).to(device)
    return flow, lambda x: -flow.log_prob(x).mean(), lambda x: flow.transform_to_noise(x)


def in_turns(
    contenders: dict[str, Callable[[], object]], repeats: int, device: str, cpu_time: bool = False
) -> dict[str, list[float]]:
    """Return the seconds of each contender's runs, taken in turns so that a busy machine hits all alike.

    Args:
        contenders: What to run, by name.
        repeats: Turns.
        device: Is waited for, where it is a GPU.
        cpu_time: Count the processor's seconds instead of the clock's; for one thread on a machine that others use too.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()  # warm-up: first batches initialise, graphs are captured
    for _ in range(repeats):
        for name, run in contenders.items():
            _wait(device)
            start = clock()
            run()
            _wait(device)
            seconds[name].append(clock() - start)
    return seconds


def ratio(theirs: list[float], ours: list[float]) -> str:
    """Return their time as a multiple of ours: the median over the turns, with the lowest and the highest."""
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    return f"{statistics.median(ratios):.1f}× ({min(ratios):.1f}–{max(ratios):.1f})"


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def correlated(rows: int, dim: int) -> Tensor:
    """Rows (n, d) with heavy tails and correlated dimensions, as sentence vectors have."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(rows, dim, generator=draw) / torch.rand(rows, 1, generator=draw).add_(0.2).sqrt_()
    return x @ torch.randn(dim, dim, generator=draw) / dim**0.5


def main() -> None:
    """Tell which peers are here."""
    found = ", ".join(peers(64, "cpu")) or "none"
    print(f"flow libraries to compare with: {found}")


if __name__ == "__main__":
    main()
