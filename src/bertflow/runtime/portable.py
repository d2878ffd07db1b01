"""A saved calibrator without torch: numpy and safetensors are all it needs, and about as fast.

For services that get their sentence vectors from elsewhere and only apply the fitted map::

    pip install numpy safetensors
    pip install --no-deps bertflow

A flow is folded once, when it is loaded: see ``bertflow.flows.folded``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.errors import InputError, ModelFolderError
from bertflow.flows.folded import FoldedFlow, fold_arrays
from bertflow.storage import model_folder

ROWS_AT_ONCE = 512  # few enough to stay in the processor's cache
FLOW = "levels.0.0.actnorm.loc"  # an array that only flows have


def load_calibrator(folder: str | Path) -> PortableCalibrator:
    """Load the calibrator of a saved model for use without torch.

    Of a model of several parts it is all their calibrators: it takes the views' vectors side by side, in the order of the
    parts, and gives what ``BertFlow.encode`` does.

    Args:
        folder: What ``save_pretrained`` or `bertflow fit` wrote.
    """
    config, arrays = model_folder.load(folder)
    try:
        parts = config.get("parts")
        if not parts:
            return PortableCalibrator(config["calibrator"], arrays)
        states = [(part["calibrator"], model_folder.arrays_of_part(arrays, i)) for i, part in enumerate(parts)]
        calibrators = [PortableCalibrator(*state) for state in states]
        scales = [float(part["scale"]) for part in parts]
        return calibrators[0] if scales == [1.0] else PortableParts(calibrators, scales)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelFolderError(
            f"The files in {folder} do not make a calibrator ({what}): copy the whole folder again, or fit again."
        ) from error


class PortableCalibrator:
    """A fitted calibrator that can do one thing, ``transform``, with numpy alone.

    Args:
        settings: What ``Calibrator.get_state`` calls settings.
        arrays: The fitted arrays.

    Attributes:
        name: The calibrator's class, such as ``"FlowCalibrator"``.
        n_features_in_: Dimensions d of the vectors it takes.
        n_features_out_: Dimensions k of the vectors it gives.
    """

    def __init__(self, settings: dict[str, Any], arrays: dict[str, Matrix]) -> None:
        self.name = str(settings["class"])
        self.n_features_in_ = int(settings["n_features_in"])
        self.n_features_out_ = int(settings["n_features_out"])
        names = frozenset(arrays)
        self.is_affine = names == AFFINE
        if FLOW in names:
            self._map = _flow_map(arrays, settings["params"].get("coupling", "additive"))
        elif names in MAPS:
            self._map = MAPS[names](arrays)
        else:
            raise InputError(f"{self.name!r} cannot be applied by numpy alone: load it with BertFlow.from_pretrained.")
        self._map(np.zeros((1, self.n_features_in_)))  # arrays that do not fit together show themselves here

    def transform(self, X: object) -> Matrix:
        """Map sentence vectors (n, d) to calibrated vectors (n, k) of the same dtype, float32 or float64."""
        x = self._checked(X)
        out = np.empty((len(x), self.n_features_out_), dtype=x.dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # told below, in a sentence
            for i in range(0, len(x), ROWS_AT_ONCE):
                out[i : i + ROWS_AT_ONCE] = self._map(x[i : i + ROWS_AT_ONCE])
        if not np.isfinite(out).all():
            raise InputError(
                f"Some rows lie so far from the fitted ones that {x.dtype} overflows: remove them, or fit with such rows."
            )
        return out

    def _checked(self, X: object) -> Matrix:
        try:
            x = np.asarray(X)
            x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)  # as scikit-learn's check does
        except (TypeError, ValueError) as error:
            raise InputError(f"X must be an (n, d) array of numbers, but it holds something else: {error}") from None
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has shape {x.shape}; this calibrator takes (n, {self.n_features_in_}). One vector v is v[None]."
            )
        if not np.isfinite(x).all():
            raise InputError("X has NaN or infinity: remove or correct these rows.")
        return x

    def __repr__(self) -> str:
        return f"PortableCalibrator({self.name}, {self.n_features_in_} → {self.n_features_out_})"


class PortableParts(PortableCalibrator):
    """The calibrators of a model of several parts.

    Args:
        calibrators: Each maps its own columns.
        scales: What their results are multiplied by.
    """

    def __init__(self, calibrators: Sequence[PortableCalibrator], scales: Sequence[float]) -> None:
        self.name = " + ".join(calibrator.name for calibrator in calibrators)
        self.n_features_in_ = sum(calibrator.n_features_in_ for calibrator in calibrators)
        self.n_features_out_ = sum(calibrator.n_features_out_ for calibrator in calibrators)
        cuts = np.cumsum([calibrator.n_features_in_ for calibrator in calibrators])[:-1]

        def apply(x: Matrix) -> Matrix:
            parts = zip(calibrators, np.split(x, cuts, axis=1), scales, strict=True)
            return np.hstack([scale * one._map(part) for one, part, scale in parts])

        self._map = apply


# Maps are partials of functions, not closures, so that models can be pickled: Ray and process pools send them.


def _flow_map(arrays: dict[str, Matrix], coupling: str) -> Callable[[Matrix], Matrix]:
    return partial(_flow, fold_arrays(arrays, coupling), arrays[FLOW].dtype)


def _flow(folded: FoldedFlow, dtype: Any, rows: Matrix) -> Matrix:
    return folded(rows.astype(dtype, copy=False))


def _affine_map(arrays: dict[str, Matrix]) -> Callable[[Matrix], Matrix]:
    return partial(_affine, *(arrays[name].astype(np.float64) for name in ("mean", "kernel")))


def _affine(mean: Matrix, kernel: Matrix, rows: Matrix) -> Matrix:
    return (rows - mean) @ kernel


def _direction_map(arrays: dict[str, Matrix]) -> Callable[[Matrix], Matrix]:
    return partial(_without_direction, arrays["direction"].astype(np.float64))


def _without_direction(direction: Matrix, rows: Matrix) -> Matrix:
    unit = unit_rows(rows.astype(np.float64))
    return unit_rows(unit - np.outer(unit @ direction, direction))


AFFINE = frozenset({"mean", "kernel", "inverse_kernel"})
#: By the names of a calibrator's arrays, what makes its map of them.
MAPS = {
    AFFINE: _affine_map,
    frozenset({"direction"}): _direction_map,
}
