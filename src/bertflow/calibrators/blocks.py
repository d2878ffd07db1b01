"""A flow for each part of the dimensions, for vectors that are several encodings of a text side by side."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators.base import Calibrator, draw_seed
from bertflow.calibrators.flow import FlowCalibrator
from bertflow.errors import InputError


class BlockFlow(Calibrator):
    """Fits a ``FlowCalibrator`` to each of several equal parts of the dimensions; the latents stand side by side again.

    Each part keeps its own Gaussian, so a cosine is about the weighted average of the parts' cosines.

    Args:
        blocks: Parts of equal size.
        weights: How much each part counts; default: all alike.
        preset: Of each flow.
        random_state: Seeds them all.
        device: Default: cuda, then mps, then cpu.
        verbose: Show progress bars.

    Attributes:
        flows_: The fitted calibrators.
    """

    _unsaved: ClassVar[frozenset[str]] = frozenset({"device", "verbose"})

    def __init__(
        self,
        blocks: int = 2,
        weights: Sequence[float] | None = None,
        *,
        preset: str = "paper",
        random_state: int | np.random.RandomState | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.blocks = blocks
        self.weights = weights
        self.preset = preset
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: object, y: object = None) -> BlockFlow:
        """Fit the flows to sentence vectors ``X`` (n, d); ``y`` is ignored."""
        x = self._check_fit(X)
        if self.blocks < 1 or x.shape[1] % self.blocks or x.shape[1] < 2 * self.blocks:
            raise InputError(f"{x.shape[1]} dimensions cannot be cut into {self.blocks} equal parts of two or more.")
        if self.weights is not None and (len(self.weights) != self.blocks or min(self.weights) <= 0):
            raise InputError(
                f"weights must be {self.blocks} positive numbers, one for each part; got {self.weights!r}."
            )
        seed = draw_seed(self.random_state)
        self.flows_ = [self._new(seed).fit(part) for part in self._parts(x)]
        self._n_features_out = x.shape[1]
        return self

    def partial_fit(self, X: object, y: object = None) -> BlockFlow:
        """Go on from the fitted flows with new rows ``X`` (n, d); see ``FlowCalibrator.partial_fit``. ``y`` is ignored."""
        if not hasattr(self, "flows_"):
            return self.fit(X)
        parts = self._parts(self._check(X))
        self.flows_ = [flow.partial_fit(part) for flow, part in zip(deepcopy(self.flows_), parts, strict=True)]
        return self

    def score_samples(self, X: object) -> Matrix:
        """Return the log-density (n,) of each row, in nats, as if the parts had nothing to do with each other."""
        parts = self._parts(self._check(X))
        return np.sum([flow.score_samples(part) for flow, part in zip(self.flows_, parts, strict=True)], axis=0)

    def _new(self, seed: int | None) -> FlowCalibrator:
        return FlowCalibrator(preset=self.preset, random_state=seed, device=self.device, verbose=self.verbose)

    def _parts(self, x: Matrix) -> list[Matrix]:
        return [np.ascontiguousarray(part) for part in np.split(x, self.blocks, axis=1)]

    def _scales(self) -> list[float]:
        return [weight**0.5 for weight in self.weights or [1.0] * self.blocks]

    def _transform(self, x: Matrix) -> Matrix:
        parts = zip(self.flows_, self._parts(x), self._scales(), strict=True)
        return np.hstack([scale * flow.transform(part) for flow, part, scale in parts])

    def _inverse(self, z: Matrix) -> Matrix:
        parts = zip(self.flows_, self._parts(z), self._scales(), strict=True)
        return np.hstack([flow.inverse_transform(part / scale) for flow, part, scale in parts])

    def _arrays(self) -> dict[str, Matrix]:
        numbered = enumerate(flow.get_state()[1] for flow in self.flows_)
        return {f"{i}.{name}": array for i, arrays in numbered for name, array in arrays.items()}

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        self.flows_ = []
        for i in range(self.blocks):
            flow = self._new(None)
            flow.n_features_in_ = flow._n_features_out = self.n_features_in_ // self.blocks
            flow._restore({name[len(f"{i}.") :]: a for name, a in arrays.items() if name.startswith(f"{i}.")})
            self.flows_.append(flow)
