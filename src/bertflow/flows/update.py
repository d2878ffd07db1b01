"""One step of training: objective, gradients, clipping, Adam; on a GPU as one CUDA graph."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from bertflow.flows.gradients import Objective
from bertflow.flows.optimizer import Adam
from bertflow.flows.reducer import ALONE, Reducer, weighted

logger = logging.getLogger(__name__)


class Update:
    """Takes a batch, changes the parameters.

    Args:
        objective: Gives the objective of a batch and sets the gradients.
        optimizer: Uses them.
    """

    def __init__(self, objective: Objective, optimizer: Adam) -> None:
        self.objective, self.optimizer = objective, optimizer

    def __call__(self, rows: Tensor, rate: float) -> Tensor:
        """Take one step at that learning rate; return the objective () of ``rows`` (n, d) before it."""
        bits = self.objective(rows)
        self.optimizer.step(rate)
        return bits


class CapturedUpdate(Update):
    """The same step as one CUDA graph: about three hundred kernels are launched together.

    Launched one by one they take longer to launch than to run. The first batch is captured. Batches of another size, such as
    the last of an epoch, take the plain step, and so do all batches if the capture fails.
    """

    graph: torch.cuda.CUDAGraph | None = None
    tried = False

    def __call__(self, rows: Tensor, rate: float) -> Tensor:  # noqa: D102
        if not self.tried:
            self.tried = True
            with torch.cuda.device(rows.device):
                self._capture(rows)
        if self.graph is None or rows.shape != self.rows.shape:
            return super().__call__(rows, rate)
        self.rows.copy_(rows)
        self.optimizer.advance(rate)
        self.graph.replay()
        return self.bits

    def _capture(self, rows: Tensor) -> None:
        self.rows = rows.clone()
        self.optimizer.advance(0.0)  # the warm-up steps change only the moments
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph):
                self.bits = self._step()
            self.graph = graph
        except RuntimeError as error:
            logger.info("The step could not be captured as a CUDA graph (%s); it runs kernel by kernel.", error)
        self.optimizer.forget()

    def _step(self) -> Tensor:
        bits = self.objective(self.rows)
        self.optimizer.update()
        return bits


class SharedUpdate(Update):
    """The same step by several processes, each with its part of the batch.

    Args:
        objective: As above.
        optimizer: As above.
        reducer: The processes.
    """

    def __init__(self, objective: Objective, optimizer: Adam, reducer: Reducer) -> None:
        super().__init__(objective, optimizer)
        self.reducer = reducer

    def __call__(self, rows: Tensor, rate: float) -> Tensor:  # noqa: D102
        gradients = self.optimizer.parameters.gradients
        bits = self.objective(rows) if len(rows) else gradients.zero_().sum()  # a batch may be smaller than the group
        bits, share = weighted(bits, len(rows), self.reducer)
        gradients.copy_(self.reducer.sum(gradients.mul_(share)))
        self.optimizer.step(rate)
        return bits


def make_update(objective: Objective, optimizer: Adam, reducer: Reducer = ALONE) -> Update:
    """Return the update for the processes and the parameters' device."""
    if reducer.world_size > 1:
        return SharedUpdate(objective, optimizer, reducer)
    kind = CapturedUpdate if optimizer.mean.device.type == "cuda" else Update
    return kind(objective, optimizer)
