"""Maximum likelihood training of a flow. Knows nothing of text or scikit-learn.

The objective is bits per dimension, −log p(x) / (d·ln 2); lower is better. A density, unlike a probability, can exceed
one: for vectors whose dimensions vary by less than about 0.24 the objective of a perfect flow is *negative*.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from tqdm.auto import tqdm

from bertflow.errors import InputError
from bertflow.flows.glow import Glow
from bertflow.flows.gradients import objective
from bertflow.flows.optimizer import Adam
from bertflow.flows.presets import TrainingConfig, preset
from bertflow.flows.reducer import ALONE, Reducer, part, weighted
from bertflow.flows.rows import Rows, noise_for_flat_dimensions, with_noise
from bertflow.flows.update import make_update

logger = logging.getLogger(__name__)

Callback: TypeAlias = Callable[[dict[str, Any]], None]

DIVERGED = 10.0  # bits/dim above the start: a run that works never gets there
MAX_SETBACKS = 3
STEPS_BETWEEN_CHECKS = 10  # or more: an epoch of few rows is a few steps, and patience would end in the warm-up
WATCHED_ROWS = 1024  # of the training rows, where none are held out
SMALL_BATCH = 262_144  # numbers; below, several threads are slower than one, on a busy machine a hundred times
MIN_HELD_OUT = 64  # rows: where these would be fewer, a first fit needs every row and holds none out


@dataclass
class History:
    """What happened in a training run.

    Args:
        losses: Bits/dim of each batch, before its step.
        validation: (step, held-out bits/dim) of each check.
        best_step: The step whose state was kept.
        stopped_early: Whether the run ended because the held-out likelihood did not improve any more.
        setbacks: How often the run diverged and was set back to its best state.
        flat_dimensions: Dimensions without variation, which were trained with a little noise.
    """

    losses: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    best_step: int = 0
    stopped_early: bool = False
    setbacks: int = 0
    flat_dimensions: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return the few numbers to keep with a model, as JSON."""
        rest = asdict(self)
        losses, validation = rest.pop("losses"), rest.pop("validation")
        tail = [bits for bits in losses[-20:] if math.isfinite(bits)]  # JSON has no NaN
        return {
            "steps": len(losses),
            "bits_per_dim": sum(tail) / len(tail) if tail else None,
            "validation_bits_per_dim": min((bits for _, bits in validation if math.isfinite(bits)), default=None),
            **rest,
        }


@torch.inference_mode(False)  # callers are often under no_grad, as encoders are
def train(
    flow: Glow,
    x: Tensor,
    config: TrainingConfig | str = "default",
    *,
    seed: int = 0,
    initialize: bool = True,
    min_held_out: int = MIN_HELD_OUT,
    callbacks: Sequence[Callback] = (),
    show_progress_bar: bool = False,
    reducer: Reducer = ALONE,
) -> History:
    """Fit ``flow`` to the rows of ``x`` in place.

    Args:
        flow: The flow; its parameters' dtype and device are those of the computation.
        x: Data (n, d), finite, on any device.
        config: A preset's name or a configuration.
        seed: Of shuffling and of the choice of held-out rows; the global generator is not used.
        initialize: Set the actnorms from the data first; False continues from the flow's current state.
        min_held_out: Hold rows out only where ``config.validation_fraction`` of them are this many or more.
        callbacks: Each is called after every step with ``{"step", "steps", "epoch", "bits_per_dim", "learning_rate"}``
            and, after a check, ``"validation_bits_per_dim"``.
        show_progress_bar: Show a bar with the bits per dimension.
        reducer: The processes that train this flow together. Each calls this with the same arguments, computes its part of
            every batch and ends with the same flow, which is that of one process except for rounding.

    Returns:
        The history of the run.
    """
    config = preset(config)
    generator = torch.Generator().manual_seed(seed)
    rows, held_out = Rows.divide(_checked(x, flow), config, generator, min_held_out)
    noise, flat = noise_for_flat_dimensions(rows)
    history = History(flat_dimensions=flat)
    if flat:
        logger.info("%d of %d dimensions do not vary; they are trained with a little noise.", len(flat), x.shape[1])
    if initialize:
        first = torch.randperm(len(rows), generator=generator)[: config.initial_rows or config.batch_size]
        with _threads_for(0):  # a few rows at a time are too small for more
            flow.initialize(part(with_noise(rows[first], noise, generator), reducer), reducer)
    _Run(flow, rows, held_out, noise, config, generator, history, reducer).go(callbacks, show_progress_bar)
    return history


@contextmanager
def _threads_for(numbers: int) -> Iterator[None]:
    """Use one thread if a batch has few numbers, otherwise all threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if numbers < SMALL_BATCH else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Run:
    """One training run: the loop, its checks, and what happens when it diverges."""

    def __init__(
        self,
        flow: Glow,
        rows: Rows,
        held_out: Tensor | None,
        noise: Tensor | None,
        config: TrainingConfig,
        generator: torch.Generator,
        history: History,
        reducer: Reducer,
    ) -> None:
        self.reducer = reducer
        self.flow, self.rows, self.held_out, self.noise = flow, rows, held_out, noise
        self.config, self.generator, self.history = config, generator, history
        self.steps = max(config.min_steps, math.ceil(config.epochs * len(rows) / config.batch_size))
        self.check_every = max(STEPS_BETWEEN_CHECKS, len(rows) // (config.batch_size * config.checks_per_epoch))
        self.objective = objective(flow, no_decay=("linear3.bias",))
        self.parameters = self.objective.parameters
        self.optimizer = Adam(
            self.parameters, config.beta2, config.weight_decay, config.bias_correction, config.clip_norm
        )
        self.update = make_update(self.objective, self.optimizer, reducer)
        self.first, self.best = self.parameters.values.clone(), self.parameters.values.clone()
        watched = rows[:: math.ceil(len(rows) / WATCHED_ROWS)] if held_out is None else held_out
        # noise first, then this process's part: every process must draw the same random numbers
        self.watched = part(with_noise(watched, noise, generator), reducer)
        self.first_bits = self.last_bits = self._watched_bits()
        # not that of the first state: a warm-up may pass through worse states, and patience would end there
        self.best_bits = math.inf
        self.checks_since_best = 0
        self.rate_factor = 1.0

    def go(self, callbacks: Sequence[Callback], show_progress_bar: bool) -> None:
        bar = tqdm(total=self.steps, desc="fitting the flow", disable=not show_progress_bar)
        with self.parameters, _threads_for(self.config.batch_size * self.flow.config.dim), bar:
            seen = 0
            for step, rows in enumerate(self._batches(), 1):
                bits, rate = self._step(rows, step)
                seen += len(rows)
                log = {"step": step, "steps": self.steps, "epoch": seen / len(self.rows)}
                log |= {"bits_per_dim": bits, "learning_rate": rate}
                if self._diverged(bits) and self._diverged(self._watched_bits()):  # not just one batch
                    self._set_back(step, bits)
                elif step % self.check_every == 0 or step == self.steps:
                    log |= self._check(step)
                _announce(bits)
                bar.update()
                bar.set_postfix_str(f"{bits:.3f} bits/dim")
                if callbacks:  # which may read and change the flow
                    self.parameters.write()
                    for callback in callbacks:
                        callback(log)
                    self.parameters.read()
                if self.history.stopped_early or self.history.setbacks >= MAX_SETBACKS:
                    break
            if self.held_out is None and self.last_bits <= self.first_bits < math.inf:
                self.history.best_step = step
            elif self.best_bits <= self.first_bits:
                self.parameters.values.copy_(self.best)
            else:
                self.parameters.values.copy_(self.first)
                self.history.best_step = 0

    def _batches(self) -> Iterator[Tensor]:
        order = torch.empty(0, dtype=torch.long)
        for _ in range(self.steps):
            if not len(order):
                n = len(self.rows)
                order = torch.randperm(n, generator=self.generator) if self.config.shuffle else torch.arange(n)
                order = order.to(self.rows.order.device)
            which, order = order[: self.config.batch_size], order[self.config.batch_size :]
            yield self.rows[which]

    def _step(self, rows: Tensor, step: int) -> tuple[float, float]:
        rate = self._rate(step)
        bits = float(self.update(part(with_noise(rows, self.noise, self.generator), self.reducer), rate))
        self.history.losses.append(bits)
        return bits, rate

    def _rate(self, step: int) -> float:
        rate = self.config.learning_rate * self.rate_factor
        if self.config.schedule == "constant":
            return rate
        warm_up = max(1.0, 0.1 * self.steps)
        decay = 0.5 * (1 + math.cos(math.pi * max(0.0, step - warm_up) / max(1.0, self.steps - warm_up)))
        return rate * min(step / warm_up, 1.0) * decay

    def _watched_bits(self) -> float:
        bits = float(weighted(self.objective.bits(self.watched), len(self.watched), self.reducer)[0])
        return bits if math.isfinite(bits) else math.inf

    def _diverged(self, bits: float) -> bool:
        return not math.isfinite(bits) or bits > self.first_bits + DIVERGED

    def _check(self, step: int) -> dict[str, float]:
        """Compare the likelihood of the watched rows with the best so far."""
        bits = self.last_bits = self._watched_bits()
        if self._diverged(bits):
            self._set_back(step, bits)
        elif bits < self.best_bits:
            self.best_bits, self.history.best_step, self.checks_since_best = bits, step, 0
            self.best.copy_(self.parameters.values)
        else:
            self.checks_since_best += 1
        if self.held_out is None:
            return {}
        self.history.validation.append((step, bits))
        self.history.stopped_early = self.checks_since_best >= self.config.patience
        return {"validation_bits_per_dim": bits}

    @torch.no_grad()
    def _set_back(self, step: int, bits: float) -> None:
        self.parameters.values.copy_(self.best)
        self.last_bits = math.inf  # of the diverged state: if the run ends here, the best state is kept
        self.optimizer.forget()
        self.rate_factor /= 2
        self.history.setbacks += 1
        logger.warning(
            "The fit diverged at step %d (%.3g bits/dim): set back to the state of step %d; %s.",
            step,
            bits,
            self.history.best_step,
            "stopping there" if self.history.setbacks >= MAX_SETBACKS else "continuing at half the learning rate",
        )


def _checked(x: Tensor, flow: Glow) -> Tensor:
    x = x.to(next(flow.parameters()))
    if x.ndim != 2 or not len(x) or x.shape[1] != flow.config.dim:
        raise InputError(f"This flow is trained on rows of {flow.config.dim} dimensions; x has shape {tuple(x.shape)}.")
    if not all(extreme.isfinite() for extreme in torch.aminmax(x)):  # both are NaN if one value is
        raise InputError(f"x has NaN or infinity, or values beyond {x.dtype}: remove or correct those rows.")
    return x


_announced = False


def _announce(bits: float) -> None:
    global _announced
    if bits < 0 and not _announced:
        _announced = True
        logger.info(
            "The loss is below zero, which is normal: it is a density in bits per dimension, and densities exceed one. "
            "Lower is better."
        )
