"""A saved calibrator without torch: numpy and safetensors are all it needs, and about as fast.

For services that get their sentence vectors from elsewhere and only apply the fitted map::

    pip install numpy safetensors
    pip install --no-deps bertflow

A flow is flattened once, when it is loaded: scales are exponentiated, the actnorms inside the networks are folded into
their weights, and Glow's linear maps are multiplied out. What is left of a step is ``FlowStep``; ``bertflow.integrations.onnx``
exports the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertflow.errors import InputError, ModelFolderError
from bertflow.storage import model_folder

if TYPE_CHECKING:
    from bertflow.arrays import Matrix

AFFINE = ("Identity", "RemoveTopComponents", "Standardize", "Whitening")
FLOW = "FlowCalibrator"
BESIDE = "WhiteningBesideFlow"
SCALE_FACTOR = 3.0  # of bertflow.flows.layers: scales are exp(3·s)
ROWS_AT_ONCE = 512  # few enough to stay in the processor's cache


def load_calibrator(folder: str | Path) -> PortableCalibrator:
    """Load the calibrator of a saved model for use without torch.

    Args:
        folder: What ``save_pretrained`` or `bertflow fit` wrote.
    """
    config, arrays = model_folder.load(folder)
    try:
        return PortableCalibrator(config["calibrator"], arrays)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelFolderError(
            f"The files in {folder} do not make a calibrator ({what}): copy the whole folder again, or fit anew."
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
        if self.name not in (*AFFINE, FLOW, BESIDE):
            raise InputError(
                f"{self.name!r} is no calibrator of bertflow's own: load it with BertFlow.from_pretrained."
            )
        if self.name == BESIDE:
            self._map = _beside_map(arrays)
        else:
            self._map = flow_map(flatten_flow(arrays)) if self.name == FLOW else _affine_map(arrays)
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
            raise InputError("X has NaN or infinity: remove or mend these rows.")
        return x

    def __repr__(self) -> str:
        return f"PortableCalibrator({self.name}, {self.n_features_in_} → {self.n_features_out_})"


def _beside_map(arrays: dict[str, Matrix]) -> Callable[[Matrix], Matrix]:
    """Whitening for the first dimensions and a flow for the rest, each with its scale."""
    whitening, flow = (
        {name.removeprefix(f"{kind}."): array for name, array in arrays.items() if name.startswith(f"{kind}.")}
        for kind in ("whitening", "flow")
    )
    maps, cut = (_affine_map(whitening), flow_map(flatten_flow(flow))), len(whitening["mean"])

    def apply(x: Matrix) -> Matrix:
        parts = zip(maps, np.split(x, [cut], axis=1), arrays["scales"], strict=True)
        return np.hstack([scale * one(np.ascontiguousarray(part)) for one, part, scale in parts])

    return apply


@dataclass(frozen=True)
class FlowStep:
    """One step of a flow, flattened: all d dimensions are shifted, mixed and scaled, the last d − k changed by the first k.

    Args:
        shift: Added first (d,).
        mix: A new order of the dimensions (d,), or a matrix (d, d) to multiply by.
        scale: Multiplied last (d,).
        layers: Weights and biases of the network's three layers: (k, h), (h, h), (h, m) with m = d − k, or 2 (d − k) for
            an affine coupling.
        leaving: How many of the last dimensions are finished latents after this step.
        reverses: Whether ``mix`` is the plain reversal, which numpy does faster as such.
    """

    shift: Matrix
    mix: np.ndarray[Any, Any]
    scale: Matrix
    layers: tuple[tuple[Matrix, Matrix], ...]
    leaving: int
    reverses: bool


def flatten_flow(arrays: dict[str, Matrix]) -> list[FlowStep]:
    """Read a flow's steps from its saved arrays, whatever its shape: ``levels.0.0.actnorm.loc`` and so on."""
    places = sorted({tuple(map(int, name.split(".")[1:3])) for name in arrays})
    dims = [len(arrays[f"levels.{level}.{step}.actnorm.loc"]) for level, step in places]
    steps = []
    for (level, step), dim, after in zip(places, dims, [*dims[1:], 0], strict=True):
        prefix = f"levels.{level}.{step}."
        part = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
        steps.append(_flatten_step(part, dim - after))
    return steps


def _flatten_step(part: dict[str, Matrix], leaving: int) -> FlowStep:
    shift, scale = part["actnorm.loc"], np.exp(SCALE_FACTOR * part["actnorm.logscale"])
    if "permutation.order" in part:
        mix: Matrix = part["permutation.order"]
        scale = scale[mix]
    else:
        mix = (scale[:, None] * _plu(part).T).astype(shift.dtype)
        scale = np.ones_like(scale)
    net = {name.removeprefix("coupling.net."): value for name, value in part.items()}
    scales = [
        np.exp(SCALE_FACTOR * net[name]) for name in ("actnorm1.logscale", "actnorm2.logscale", "linear3.logscale")
    ]
    biases = [net["actnorm1.loc"], net["actnorm2.loc"], net["linear3.bias"]]
    layers = tuple(
        (np.ascontiguousarray((net[f"linear{i + 1}.weight"] * scales[i][:, None]).T), biases[i] * scales[i])
        for i in range(3)
    )
    reverses = np.array_equal(mix, np.arange(len(shift))[::-1])
    return FlowStep(shift, mix, scale, layers, leaving, reverses)


def _plu(part: dict[str, Matrix]) -> Matrix:
    """W = P·L·U of Glow's linear map z = x·Wᵀ, in float64."""
    wide = {name.removeprefix("permutation."): np.asarray(value, np.float64) for name, value in part.items()}
    lower = np.tril(wide["lower"], -1) + np.eye(len(wide["sign"]))
    upper = np.triu(wide["upper"], 1) + np.diag(wide["sign"] * np.exp(wide["log_diagonal"]))
    return (lower @ upper)[part["permutation.pivots"]]


def flow_map(steps: list[FlowStep]) -> Callable[[Matrix], Matrix]:
    """Return the function from rows (n, d) to latents (n, d)."""

    def apply(rows: Matrix) -> Matrix:
        x, finished = rows.astype(steps[0].shift.dtype, copy=False), []
        for step in steps:
            x = _apply_step(step, x)
            x, done = np.split(x, [x.shape[1] - step.leaving], axis=1)
            finished.append(done)
        return np.concatenate(finished, axis=1)

    return apply


def _apply_step(step: FlowStep, x: Matrix) -> Matrix:
    x = x + step.shift
    if step.mix.ndim == 2:
        x = x @ step.mix
    else:
        x = np.ascontiguousarray(x[:, ::-1]) if step.reverses else np.take(x, step.mix, axis=1)
    x *= step.scale
    (w1, b1), (w2, b2), (w3, b3) = step.layers
    hidden = np.maximum(x[:, : len(w1)] @ w1 + b1, 0)
    answer = np.maximum(hidden @ w2 + b2, 0) @ w3 + b3
    second = x[:, len(w1) :]
    second += answer[:, : second.shape[1]]
    if answer.shape[1] > second.shape[1]:
        second *= np.exp2(np.tanh(answer[:, second.shape[1] :]))
    return x


def _affine_map(arrays: dict[str, Matrix]) -> Callable[[Matrix], Matrix]:
    mean, kernel = (arrays[name].astype(np.float64) for name in ("mean", "kernel"))
    return lambda rows: (rows - mean) @ kernel
