"""Whitening for the first dimensions and a flow for the last, where vectors are two encodings of a text side by side."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators.base import Calibrator, take_arrays
from bertflow.calibrators.flow import FlowCalibrator
from bertflow.calibrators.linear import Whitening
from bertflow.errors import InputError


class WhiteningBesideFlow(Calibrator):
    """Whitens all dimensions but the last few, fits a flow to these; the results stand side by side again.

    Both parts are scaled to the same mean square length, then weighted, so a cosine is about the weighted average of the
    parts' cosines.

    Args:
        flow_dims: How many of the last dimensions the flow takes.
        shrinkage: Of ``Whitening``.
        flow_weight: How much the flow's part counts, against 1 of the other.
        preset: Of ``FlowCalibrator``.
        random_state: Seeds the flow.
        device: Default: cuda, then mps, then cpu.
        verbose: Show a progress bar.

    Attributes:
        whitening_: The fitted ``Whitening``.
        flow_: The fitted ``FlowCalibrator``.
        scales_: What each part is multiplied by (2,).
    """

    whitening_: Whitening
    flow_: FlowCalibrator
    scales_: Matrix
    _unsaved: ClassVar[frozenset[str]] = frozenset({"device", "verbose"})

    def __init__(
        self,
        flow_dims: int,
        *,
        shrinkage: float = 0.0,
        flow_weight: float = 1.0,
        preset: str = "paper",
        random_state: int | np.random.RandomState | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.flow_dims = flow_dims
        self.shrinkage = shrinkage
        self.flow_weight = flow_weight
        self.preset = preset
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: object, y: object = None) -> WhiteningBesideFlow:
        """Fit both to sentence vectors ``X`` (n, d); ``y`` is ignored."""
        x = self._check_fit(X)
        if not 2 <= self.flow_dims <= x.shape[1] - 2:
            raise InputError(
                f"flow_dims is {self.flow_dims!r}; of {x.shape[1]} dimensions both parts need two or more."
            )
        if not (isinstance(self.flow_weight, numbers.Real) and self.flow_weight > 0):
            raise InputError(f"flow_weight is {self.flow_weight!r}; it must be a positive number.")
        self.whitening_, self.flow_ = self._new()
        parts = [part.fit(rows).transform(rows) for part, rows in zip(self._fitted(), self._cut(x), strict=True)]
        lengths = np.array([np.square(part, dtype=np.float64).sum(1).mean() for part in parts])
        self.scales_ = np.sqrt([1.0, self.flow_weight] / np.maximum(lengths, np.finfo(np.float32).tiny))
        self._n_features_out = x.shape[1]
        return self

    def _new(self) -> tuple[Whitening, FlowCalibrator]:
        settings: dict[str, Any] = {"random_state": self.random_state, "device": self.device, "verbose": self.verbose}
        return Whitening(shrinkage=self.shrinkage), FlowCalibrator(preset=self.preset, **settings)

    def _fitted(self) -> tuple[Whitening, FlowCalibrator]:
        return self.whitening_, self.flow_

    def _cut(self, x: Matrix) -> list[Matrix]:
        return [np.ascontiguousarray(part) for part in np.split(x, [x.shape[1] - self.flow_dims], axis=1)]

    def _transform(self, x: Matrix) -> Matrix:
        parts = zip(self._fitted(), self._cut(x), self.scales_, strict=True)
        return np.hstack([scale * part.transform(rows) for part, rows, scale in parts])

    def _inverse(self, z: Matrix) -> Matrix:
        parts = zip(self._fitted(), self._cut(z), self.scales_, strict=True)
        return np.hstack([part.inverse_transform(rows / scale) for part, rows, scale in parts])

    def _arrays(self) -> dict[str, Matrix]:
        whitening, flow = (part.get_state()[1] for part in self._fitted())
        named = {f"whitening.{name}": array for name, array in whitening.items()}
        return named | {f"flow.{name}": array for name, array in flow.items()} | {"scales": self.scales_}

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        scales = {name: array for name, array in arrays.items() if "." not in name}
        self.scales_ = take_arrays(scales, {"scales": (2,)})["scales"].astype(np.float64)
        self.whitening_, self.flow_ = self._new()
        sizes = {"whitening": self.n_features_in_ - self.flow_dims, "flow": self.flow_dims}
        for (name, size), part in zip(sizes.items(), self._fitted(), strict=True):
            part.n_features_in_ = part._n_features_out = size
            part._restore({k.removeprefix(f"{name}."): v for k, v in arrays.items() if k.startswith(f"{name}.")})
