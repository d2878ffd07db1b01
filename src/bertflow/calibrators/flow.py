"""The paper's calibrator: a normalizing flow as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bertflow.arrays import Matrix, choose_device
from bertflow.calibrators.base import Calibrator, draw_seed, take_arrays
from bertflow.calibrators.modules import FlowMap
from bertflow.encoders.threads import compute_ahead
from bertflow.errors import InputError
from bertflow.flows import Glow, GlowConfig, History, fold, train
from bertflow.flows.presets import TrainingConfig, preset
from bertflow.flows.reducer import ALONE, Reducer
from bertflow.flows.training import Callback

ROWS_AT_ONCE = {"cpu": 512}  # few enough to stay in the processor's cache
ROWS_AT_ONCE_ELSEWHERE = 16384  # flat memory, and enough to keep a GPU busy

# Going on from a fitted flow, see docs/refit.md: at the full rate a hundred rows unlearn more than they teach.
PARTIAL_RATE = 0.3
PARTIAL_HELD_OUT = 64, 0.2  # rows, but no more than this part of them
PARTIAL_ROWS = 10  # at least


class FlowCalibrator(Calibrator):
    """Maps sentence vectors to a standard Gaussian by an invertible flow, fitted by maximum likelihood.

    A transformer (``transform``, ``inverse_transform``) and a density estimator (``score_samples``, ``score``, ``sample``).

    Args:
        levels: Levels of the flow.
        depth: Steps in each level.
        width: Hidden units of the couplings' networks.
        coupling: ``"additive"`` (the paper's) or ``"affine"``.
        permutation: ``"reverse"``, ``"random"`` or ``"linear"``.
        preset: ``"default"`` or ``"paper"``: see ``bertflow.flows.PRESETS``.
        epochs: Instead of the preset's.
        batch_size: Instead of the preset's.
        learning_rate: Instead of the preset's.
        random_state: Seeds weights, held-out rows and shuffling. The global generators are not touched.
        device: Default: cuda, then mps, then cpu.
        callbacks: Called after each step with a dictionary; see ``bertflow.flows.train``.
        verbose: Show a progress bar.

    Attributes:
        flow_: The fitted ``Glow``.
        history_: What happened in the fit (not saved, not there after loading).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 6)) * 3 + 1
        >>> calibrator = FlowCalibrator(random_state=0).fit(x)
        >>> z = calibrator.transform(x)
        >>> bool(np.allclose(calibrator.inverse_transform(z), x))
        True
    """

    _unsaved: ClassVar[frozenset[str]] = frozenset({"device", "callbacks", "verbose"})

    def __init__(
        self,
        *,
        levels: int = 3,
        depth: int = 3,
        width: int = 32,
        coupling: str = "additive",
        permutation: str = "reverse",
        preset: str = "default",
        epochs: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = False,
    ) -> None:
        self.levels = levels
        self.depth = depth
        self.width = width
        self.coupling = coupling
        self.permutation = permutation
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device
        self.callbacks = callbacks
        self.verbose = verbose

    @torch.inference_mode(False)  # the parameters are to be trained, wherever this is called from
    def fit(self, X: object, y: object = None, *, reducer: Reducer = ALONE) -> FlowCalibrator:
        """Fit the flow to sentence vectors ``X`` (n, d); ``y`` is ignored.

        With a ``reducer`` several processes fit it together, each given all of ``X``: see ``bertflow.scale.torchrun``.
        """
        x = self._check_fit(X)
        seed = draw_seed(self.random_state)
        flow = self._build(x.shape[1], seed).to(choose_device(self.device), _torch_dtype(x))
        return self._train(flow, x, self._config(), seed=seed, reducer=reducer)

    @torch.inference_mode(False)
    def partial_fit(self, X: object, y: object = None) -> FlowCalibrator:
        """Go on from the fitted flow with new rows ``X`` (n, d), at least 10; an unfitted one is fitted. ``y`` is ignored.

        For a flow of general text and little text of one's own. The earlier rows are not kept, so this adapts rather than
        adds: the schedule of ``fit`` at three tenths of its rate, with a fifth of few rows or a few of many held out. The
        flow that is likeliest there stays, and that may be the old one (``history_.best_step`` is then 0).
        """
        if not hasattr(self, "flow_"):
            return self.fit(X)
        x = self._check(X)
        if len(x) < PARTIAL_ROWS:
            raise InputError(f"{len(x)} row(s) teach a flow nothing; partial_fit takes {PARTIAL_ROWS} at least.")
        config, (rows, most) = self._config(), PARTIAL_HELD_OUT
        config = replace(
            config,
            learning_rate=PARTIAL_RATE * config.learning_rate,
            validation_fraction=max(config.validation_fraction, min(rows / len(x), most)),
        )
        seed = draw_seed(self.random_state)
        return self._train(deepcopy(self.flow_), x, config, seed=seed, initialize=False, min_held_out=1)

    def _config(self) -> TrainingConfig:
        changes = {name: getattr(self, name) for name in ("epochs", "batch_size", "learning_rate")}
        return replace(preset(self.preset), **{name: value for name, value in changes.items() if value is not None})

    def _train(self, flow: Glow, x: Matrix, config: TrainingConfig, **options: Any) -> FlowCalibrator:
        rows = torch.from_numpy(np.require(x, requirements=["C", "W"]))  # torch takes no read-only memory map
        options |= {"callbacks": self.callbacks or (), "show_progress_bar": self.verbose}
        self.history_: History = train(flow, rows, config, **options)
        self.flow_ = flow
        self._n_features_out = x.shape[1]
        return self

    def score_samples(self, X: object) -> Matrix:
        """Return the log-density (n,) of each row, in nats."""
        scores = self._rowwise(self.flow_log_prob, self._check(X), per_row=True)
        return np.where(np.isnan(scores), -np.inf, scores)  # rows so far out that their latents overflow

    def score(self, X: object, y: object = None) -> float:
        """Return the mean log-density of the rows: higher is better, for ``GridSearchCV`` too."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, *, temperature: float = 1.0) -> Matrix:
        """Draw sentence vectors (n_samples, d) from the fitted density."""
        self._check_latents(np.zeros((1, getattr(self, "_n_features_out", 1))))
        rows = self.flow_.sample(n_samples, seed=draw_seed(self.random_state), temperature=temperature)
        return rows.cpu().numpy()

    def flow_log_prob(self, x: Tensor) -> Tensor:
        """Return the flow's log-density of a tensor (n, d)."""
        return self.flow_.log_prob(x)

    def _transform(self, x: Matrix) -> Matrix:
        return _finite(self._rowwise(fold(self.flow_), x))

    def _inverse(self, z: Matrix) -> Matrix:
        return _finite(self._rowwise(self.flow_.inverse, z))

    def _rowwise(self, function: Callable[[Tensor], Tensor], x: Matrix, *, per_row: bool = False) -> Matrix:
        """Apply a function to rows (n, d), a few at a time; it gives as many rows, or one number ``per_row``."""
        out = np.empty(len(x) if per_row else x.shape, dtype=x.dtype)
        weight = next(self.flow_.parameters())
        size = ROWS_AT_ONCE.get(weight.device.type, ROWS_AT_ONCE_ELSEWHERE)

        @torch.inference_mode()
        def compute(start: int) -> None:
            rows = torch.from_numpy(np.require(x[start : start + size], requirements=["C", "W"]))
            out[start : start + size] = function(rows.to(weight)).cpu().numpy()

        for _ in compute_ahead(compute, range(0, len(x), size), weight.device):
            pass
        return out

    def as_module(self) -> FlowMap:
        """Return a copy of the flow's forward map as a torch module."""
        check_is_fitted(self)
        return FlowMap(deepcopy(self.flow_))

    def _build(self, dim: int, seed: int) -> Glow:
        return Glow(GlowConfig(dim, self.levels, self.depth, self.width, self.coupling, self.permutation, seed=seed))

    def _arrays(self) -> dict[str, Matrix]:
        return {name: value.cpu().numpy() for name, value in self.flow_.state_dict().items()}

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        flow = self._build(self.n_features_in_, 0)
        take_arrays(arrays, {name: tuple(value.shape) for name, value in flow.state_dict().items()})
        flow.to(_torch_dtype(arrays["levels.0.0.actnorm.loc"]))  # before loading, or float64 would be rounded
        flow.load_state_dict({name: torch.tensor(value) for name, value in arrays.items()})
        self.flow_ = flow.to(choose_device(self.device))

    def to(self, device: str | torch.device) -> FlowCalibrator:
        """Move the fitted flow to a device; returns itself."""
        self.flow_.to(choose_device(device))
        return self


def _finite(rows: Matrix) -> Matrix:
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise InputError(
            f"{bad.size} row(s), first row {bad[0]}, lie so far from the fitted ones that {rows.dtype} overflows: "
            "remove them, or fit with such rows among the others."
        )
    return rows


def _torch_dtype(x: Any) -> torch.dtype:
    return torch.float64 if x.dtype == np.float64 else torch.float32
