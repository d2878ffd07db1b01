"""The mean direction taken out of unit vectors: one projection, after which rows have length one again."""

from __future__ import annotations

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.calibrators.base import Calibrator, take_arrays
from bertflow.errors import InputError


class RemoveMeanDirection(Calibrator):
    """With m the direction of the mean of unit vectors, u becomes u − (u·m) m, scaled to length one (R2 of arXiv 2511.11041).

    The gentlest correction there is: on encoders that were tuned for similarity it has cost nothing where whitening did.

    Attributes:
        direction_: m, of length one, or 0 where the unit vectors have no mean (d,).
    """

    direction_: Matrix

    def fit(self, X: object, y: object = None) -> RemoveMeanDirection:
        """Fit to rows (n, d); ``y`` is ignored."""
        x = self._check_fit(X)
        self.direction_ = unit_rows(unit_rows(x.astype(np.float64)).mean(axis=0)[None])[0]
        self._n_features_out = x.shape[1]
        return self

    def _transform(self, x: Matrix) -> Matrix:
        unit = unit_rows(x.astype(np.float64))
        return unit_rows(unit - np.outer(unit @ self.direction_, self.direction_))

    def _inverse(self, z: Matrix) -> Matrix:
        raise InputError("RemoveMeanDirection forgets lengths and a direction: it has no way back.")

    def _arrays(self) -> dict[str, Matrix]:
        return {"direction": self.direction_}

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        self.direction_ = take_arrays(arrays, {"direction": (self.n_features_in_,)})["direction"].astype(np.float64)
