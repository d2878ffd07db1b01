"""How fast a flow is fitted, against the port's way of computing, normflows and nflows: a step, and the whole fit.

python benchmarks/fitting.py
python benchmarks/fitting.py --device cuda --batch 32 --batch 256 --batch 4096
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
import typer
from peers import correlated, in_turns, peers, ratio
from port import PortAdamW, PortFlow, port_step
from torch import Tensor, nn

from bertflow import FlowCalibrator
from bertflow.flows import Glow, GlowConfig
from bertflow.flows.gradients import AdditiveObjective, Objective
from bertflow.flows.optimizer import Adam
from bertflow.flows.update import CapturedUpdate, Update

OURS, PORT = "bertflow", "the port (stand-in)"
SAMPLE = 16  # steps, and sentences, that stand for all


@dataclass
class OurStep:
    """A step of the ``paper`` preset."""

    x: Tensor
    objective: type[Objective] = AdditiveObjective
    update: type[Update] = Update

    def __post_init__(self) -> None:
        """Build the flow; its parameters stay views to the end."""
        self.flow = Glow(GlowConfig(self.x.shape[1])).to(self.x)
        self.flow.initialize(self.x)
        objective = self.objective(self.flow, no_decay=("linear3.bias",))
        optimizer = Adam(
            objective.parameters.__enter__(), beta2=0.999, weight_decay=0.01, bias_correction=False, clip_norm=1.0
        )
        self.step = self.update(objective, optimizer)

    def __call__(self) -> float:
        """Take it."""
        return float(self.step(self.x, 1e-3))


class CompiledObjective(Objective):
    """The autograd objective through ``torch.compile``."""

    def __init__(self, flow: Glow, no_decay: tuple[str, ...] = ()) -> None:
        """Compile it; the first step does so."""
        super().__init__(flow, no_decay)
        self.compiled = torch.compile(flow.bits_per_dim)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the objective of ``x`` and overwrite the gradients."""
        self.parameters.gradients.zero_()
        bits = self.compiled(x)
        bits.backward()
        return bits.detach()


def library_step(flow: nn.Module, loss: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], float]:
    """Return a step of another library's flow."""
    optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-3, eps=1e-6, weight_decay=0.01)

    def step() -> float:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
        optimizer.step()
        return value.item()

    return step


def steps(x: Tensor) -> dict[str, Callable[[], float]]:
    """Return one step of every contender, ours first."""
    device = x.device.type
    captured = CapturedUpdate if device == "cuda" else Update
    port = PortFlow(x.shape[1]).to(device)
    found: dict[str, Callable[[], float]] = {OURS: OurStep(x, update=captured)}
    if device == "cuda":
        found |= {"bertflow, not captured": OurStep(x), "autograd, captured": OurStep(x, Objective, captured)}
    found |= {"bertflow by autograd": OurStep(x, Objective), "autograd, torch.compile": OurStep(x, CompiledObjective)}
    found[PORT] = partial(port_step, port, PortAdamW(port), x)
    return found | {name: library_step(flow, loss, x) for name, (flow, loss, _) in peers(x.shape[1], device).items()}


def again(step: Callable[[], float], times: int) -> Callable[[], None]:
    """Return a run of several steps."""

    def run() -> None:
        for _ in range(times):
            step()

    return run


def compare_steps(dim: int, batch: int, repeats: int, times: int, device: str, cpu_time: bool) -> None:
    """Print one table."""
    contenders = steps(correlated(batch, dim).to(device))
    seconds = in_turns({name: again(step, times) for name, step in contenders.items()}, repeats, device, cpu_time)
    print(f"\nOne step, d = {dim}, batches of {batch}, {device}\n\n| | ms | times ours |\n|---|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {1e3 * statistics.median(values) / times:.2f} | {ratio(values, seconds[OURS])} |")


def encoder(tokens: int, device: str) -> Callable[[], object]:
    """Return the encoding of a sample of sentences by an encoder of BERT-base's shape."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(), add_pooling_layer=False).eval().to(device)
    ids = torch.randint(1000, 30000, (SAMPLE, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    return torch.inference_mode()(lambda: model(ids).last_hidden_state.mean(1).cpu())


def compare_fits(rows: int, dim: int, tokens: int, repeats: int, device: str, cpu_time: bool) -> None:
    """Print what a whole fit costs, beside the port's epoch and the encoding, both measured on a part and scaled."""
    x = correlated(rows, dim)
    port = PortFlow(dim).to(device)
    port_steps = again(partial(port_step, port, PortAdamW(port), x[:32].to(device)), SAMPLE)
    applied = FlowCalibrator(epochs=0.1, random_state=0, device=device).fit(x.numpy()).transform
    runs: dict[str, tuple[float, Callable[[], object]]] = {
        "bertflow, applying to all": (1, partial(applied, x.numpy())),
        "bertflow, preset default": (1, partial(_fit, "default", x.numpy(), device)),
        "bertflow, preset paper": (1, partial(_fit, "paper", x.numpy(), device)),
        f"{PORT}, one epoch of the paper ({SAMPLE} steps, scaled)": (math.ceil(rows / 32) / SAMPLE, port_steps),
        f"encoding: BERT-base's shape, {tokens} tokens ({SAMPLE} rows, scaled)": (
            rows / SAMPLE,
            encoder(tokens, device),
        ),
    }
    seconds = in_turns({name: run for name, (_, run) in runs.items()}, repeats, device, cpu_time)
    scaled = {name: [factor * value for value in seconds[name]] for name, (factor, _) in runs.items()}
    ours, encoding = scaled["bertflow, preset default"], statistics.median(list(scaled.values())[-1])
    print(f"\nThe whole fit on {rows} vectors, d = {dim}, {device}\n")
    print("| | seconds | times preset default | share of encoding |\n|---|---|---|---|")
    for name, values in scaled.items():
        seconds_taken = statistics.median(values)
        print(f"| {name} | {seconds_taken:.2f} | {ratio(values, ours)} | {100 * seconds_taken / encoding:.2g} % |")


def _fit(preset: str, x: object, device: str) -> None:
    FlowCalibrator(preset=preset, random_state=0, device=device).fit(x)


def main(
    dim: Annotated[list[int], typer.Option(help="Dimensions.")] = [768],  # noqa: B006
    batch: Annotated[list[int], typer.Option(help="Rows a step.")] = [32, 256],  # noqa: B006
    rows: Annotated[int, typer.Option(help="Vectors of the whole fit.")] = 17_256,
    tokens: Annotated[int, typer.Option(help="Tokens of a sentence for the encoder.")] = 16,
    repeats: Annotated[int, typer.Option(help="Turns of each contender.")] = 7,
    times: Annotated[int, typer.Option(help="Steps in a turn.")] = 10,
    threads: Annotated[int, typer.Option(help="CPU threads; 0: as torch likes.")] = 0,
    device: Annotated[str, typer.Option(help="Default: cuda where there is one.")] = "",
    cpu_time: Annotated[bool, typer.Option(help="CPU seconds, for one thread on a busy machine.")] = False,
) -> None:
    """Print the tables."""
    if threads:
        torch.set_num_threads(threads)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; median of {repeats} turns (lowest–highest ratio)"
    )
    for d in dim:
        for n in batch:
            compare_steps(d, n, repeats, times, device, cpu_time)
        compare_fits(rows, d, tokens, repeats, device, cpu_time)


if __name__ == "__main__":
    typer.run(main)
