"""Calibrators that are one affine map, z = (x − mean) @ kernel: the classical answers to an uneven embedding space.

All of them are functions of the mean and covariance of the training rows, hence exact on streams (``partial_fit``) and
across machines (``fit_moments``), and all can be folded into one dense layer.
"""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted, validate_data

from bertflow.arrays import Matrix
from bertflow.calibrators.base import Calibrator, take_arrays
from bertflow.errors import InputError
from bertflow.moments import Moments

if TYPE_CHECKING:
    from typing import Self

    from bertflow.calibrators.modules import AffineMap

logger = logging.getLogger(__name__)

Array = npt.NDArray[np.float64]

# A direction with less than this share of the largest eigenvalue is rounding, not language. Encoders that end in a
# LayerNorm have one such direction by construction. For the mini encoder's mean-pooled vectors of STS-B its share is
# 7e-16 as computed (float32), 4e-9 once rounded to float16 and 2e-7 to bfloat16; the next smallest share is 7e-4.
# Kept, it does little harm to the rows of the fit (59.9 against 60.0), but a map fitted in float32 and applied to the
# same rows rounded to float16 falls to 1.9: the noise of other rows is amplified by the first rows' noise.
_DEAD_DIRECTION = 1e-6

# Single dimensions are not mixed, so the widest one's rounding does not reach the others: the limit can be lower. It
# still covers a constant that a float32 mean over tokens made jitter (1e-7 of a value 100 times the widest deviation).
_DEAD_DIMENSION = 1e-10

_BLOCK_ROWS = 8192  # bounds the float64 copies made of a large float32 input


class _AffineCalibrator(Calibrator):
    """Base of the affine calibrators; a subclass says in ``_solve`` what the moments mean for the map.

    The arithmetic is in float64 whatever the input, so that vectors of size 1e-40 or 1e30 pass; the result has the
    input's dtype.

    Attributes:
        mean_: What is subtracted (d,).
        kernel_: What the difference is multiplied by (d, k).
        inverse_kernel_: The way back (k, d). Where the kernel drops directions this is a generalised inverse (kernel @
            inverse @ kernel = kernel): what was dropped comes back as its mean.
    """

    mean_: Array
    kernel_: Array
    inverse_kernel_: Array
    _moments: Moments

    def _solve(self, moments: Moments) -> tuple[Array, Array, Array]:
        """Return (mean, kernel, inverse kernel) from the moments of the training rows."""
        raise NotImplementedError

    def fit(self, X: object, y: object = None) -> Self:
        """Fit to rows (n, d), forgetting earlier ones."""
        return self._learn(Moments().add(self._check_fit(X)))

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Fit to rows (n, d) as well as to all earlier ones: the same map as one ``fit`` on everything.

        Each call solves for the map. Over very many batches, gather ``Moments`` and call ``fit_moments`` once.
        """
        known = getattr(self, "_moments", None)
        if known is None and hasattr(self, "kernel_"):
            raise InputError("This calibrator was loaded, and a saved one keeps no moments to add to: fit a new one.")
        if known is None:
            x = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_features=2)
            return self._learn(Moments().add(x))
        return self._learn(Moments().merge(known).add(self._check(X)))

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to rows that only ``moments`` has seen, on this machine or merged from many."""
        if moments.count < 2 or len(moments.mean) < 2:
            raise InputError(f"At least 2 rows of 2 dimensions are needed; got {moments.count} of {len(moments.mean)}.")
        self.n_features_in_ = len(moments.mean)
        self.__dict__.pop("feature_names_in_", None)  # moments carry no names; an earlier fit's must not linger
        return self._learn(Moments().merge(moments))

    def as_affine(self) -> tuple[Array, Array]:
        """Return the whole map as (matrix, bias) in float64, for other tools: transform(x) = x @ matrix + bias.

        Returns:
            matrix: What a row is multiplied by (d, k).
            bias: What is then added (k,).
        """
        check_is_fitted(self)
        return self.kernel_.copy(), -self.mean_ @ self.kernel_

    def as_module(self) -> AffineMap:
        """Return the map as a torch module, float32."""
        from bertflow.calibrators.modules import AffineMap

        check_is_fitted(self)
        return AffineMap.of(self.mean_, self.kernel_)

    def _learn(self, moments: Moments) -> Self:
        # contiguous, since safetensors writes memory as it lies and eigh's results are transposed views
        self.mean_, self.kernel_, self.inverse_kernel_ = map(np.ascontiguousarray, self._solve(moments))
        self._moments = moments
        self._n_features_out = self.kernel_.shape[1]
        dead = self._n_features_out - int(self.kernel_.any(axis=0).sum())
        if dead:
            logger.info("%s maps %d of %d dimensions to 0.", type(self).__name__, dead, self._n_features_out)
        return self

    def _transform(self, x: Matrix) -> Matrix:
        return _by_blocks(x, lambda rows: (rows - self.mean_) @ self.kernel_)

    def _inverse(self, z: Matrix) -> Matrix:
        return _by_blocks(z, lambda rows: rows @ self.inverse_kernel_ + self.mean_)

    def _arrays(self) -> dict[str, Matrix]:
        return {"mean": self.mean_, "kernel": self.kernel_, "inverse_kernel": self.inverse_kernel_}

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        d, k = self.n_features_in_, self._n_features_out
        taken = take_arrays(arrays, {"mean": (d,), "kernel": (d, k), "inverse_kernel": (k, d)})
        self.mean_, self.kernel_, self.inverse_kernel_ = (
            taken[name].astype(np.float64) for name in ("mean", "kernel", "inverse_kernel")
        )


class Identity(_AffineCalibrator):
    """No calibration: the baseline that every other one must beat."""

    def _solve(self, moments: Moments) -> tuple[Array, Array, Array]:
        d = len(moments.mean)
        return np.zeros(d), np.eye(d), np.eye(d)


class Standardize(_AffineCalibrator):
    """Standard normalisation (SN of the paper's Table 5): (x − mean) / std, each dimension for itself.

    A dimension that is constant but for rounding becomes 0.
    """

    def _solve(self, moments: Moments) -> tuple[Array, Array, Array]:
        std, scale = _roots(moments.variance, _DEAD_DIMENSION)
        return moments.mean, np.diag(scale), np.diag(std)


class RemoveTopComponents(_AffineCalibrator):
    """Remove what all sentences share: the mean and the k strongest directions (NATSV of the paper's Table 5).

    This is all-but-the-top of Mu & Viswanath (ICLR 2018): subtract the mean, then the projection on the top k principal
    directions. The result has d dimensions and rank at most d − k.

    Args:
        k: Number of directions to remove, 0 to d − 1.
        center: Subtract the mean first. Without it the directions are the singular vectors of the raw rows, of which
            the first is close to the mean (as in SIF, Arora et al. 2017).
        standardize: Standardise first, which centres as well: SN+NATSV of Table 5, still one affine map.
        partly: Remove of each direction only its share of the k directions' variance, as uSIF does (Ethayarajh 2018).
    """

    def __init__(self, k: int = 1, *, center: bool = True, standardize: bool = False, partly: bool = False) -> None:
        self.k = k
        self.partly = partly
        self.center = center
        self.standardize = standardize

    def _solve(self, moments: Moments) -> tuple[Array, Array, Array]:
        d = len(moments.mean)
        k = _checked_integer("k", self.k, 0, d - 1)
        std, scale = _roots(moments.variance, _DEAD_DIMENSION) if self.standardize else (np.ones(d), np.ones(d))
        mean = moments.mean if self.center or self.standardize else np.zeros(d)
        offset = moments.mean - mean
        values, vectors = _eigen(scale[:, None] * (moments.covariance() + np.outer(offset, offset)) * scale)
        top = vectors[:, :k] * (values[:k] > _DEAD_DIRECTION * values[0])  # rows may span fewer than k directions
        top = top * (scale > 0)[:, None]  # exactly 0 in dead dimensions, where eigh leaves 1e-16
        share = values[:k] / max(values[:k].sum(), np.finfo(np.float64).tiny) if self.partly else np.ones(k)
        rest = np.eye(d) - top * share @ top.T
        back = np.divide(share, 1 - share, out=-np.ones(k), where=share < 1 - 1e-12)
        return mean, scale[:, None] * rest, (np.eye(d) + top * back @ top.T) * std


class Whitening(_AffineCalibrator):
    """Make the covariance the identity (Su et al. 2021, "BERT-whitening"), wholly or partly, optionally in fewer dimensions.

    With eigenvalues λ of the covariance, the principal axes are scaled by λ^(−alpha/2): alpha 1 whitens, 0 only centres (and
    rotates), and what lies between keeps some of the space's own proportions.

    Directions in which the training rows hardly vary (below 1e-6 of the largest eigenvalue: dead dimensions, fewer rows
    than dimensions, the direction that a final LayerNorm takes away) carry no information and become 0 instead of
    amplified noise.

    Args:
        n_components: Dimensions to keep, the strongest first; all of them when None. Only for ``method="pca"``.
        shrinkage: In [0, 1]: the covariance becomes (1 − s) C + s · mean eigenvalue · I, for few rows. Every direction
            then has at least the variance s · mean eigenvalue. Unless s is tiny (that variance still below 1e-6 of the
            largest) none is dropped, not even a constant one, where new rows may differ at a bounded weight; the map
            then has a true inverse.
        alpha: In [0, 1]: how far to flatten the space.
        method: ``"pca"`` leaves the result in principal axes, ordered by variance; ``"zca"`` rotates back, so that each
            dimension stays as close as possible to what it was. Cosines are the same.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        shrinkage: float = 0.0,
        method: Literal["pca", "zca"] = "pca",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.shrinkage = shrinkage
        self.method = method

    def _solve(self, moments: Moments) -> tuple[Array, Array, Array]:
        kept = self._checked_components(len(moments.mean))
        values, vectors = _eigen(moments.covariance())
        values = (1 - self.shrinkage) * values + self.shrinkage * values.mean()
        root, scale = _roots(values, _DEAD_DIRECTION, self.alpha)
        kernel, inverse = (vectors * scale)[:, :kept], (vectors * root).T[:kept]
        if self.method == "zca":
            kernel, inverse = kernel @ vectors.T, vectors @ inverse
        return moments.mean, kernel, inverse

    def reduced(self, dimension: int) -> Whitening:
        """Return the first so many dimensions: the same as a whitening that was fitted with so many components."""
        check_is_fitted(self)
        if self.method != "pca":
            raise InputError("Only the dimensions of method='pca' are ordered, so that the last ones can be left out.")
        _checked_integer("dimension", dimension, 1, self.dim)
        settings, arrays = self.get_state()
        params = settings["params"] | {"n_components": dimension}
        cut = {"kernel": arrays["kernel"][:, :dimension], "inverse_kernel": arrays["inverse_kernel"][:dimension]}
        return type(self).from_state(settings | {"params": params, "n_features_out": dimension}, arrays | cut)

    def _checked_components(self, d: int) -> int:
        """Check the parameters for rows of ``d`` dimensions; return how many to keep."""
        if self.method not in ("pca", "zca"):
            raise InputError(f"method is {self.method!r}; it must be 'pca' or 'zca'.")
        for name in ("alpha", "shrinkage"):
            value: Any = getattr(self, name)
            if not (isinstance(value, numbers.Real) and 0 <= float(value) <= 1):
                raise InputError(f"{name} is {value!r}; it must be a number from 0 to 1.")
        if self.n_components is None:
            return d
        if self.method == "zca":
            raise InputError("method='zca' gives all dimensions back; leave n_components out or use method='pca'.")
        return _checked_integer("n_components", self.n_components, 1, d)


def _by_blocks(x: Matrix, apply: Callable[[Matrix], Array]) -> Matrix:
    """Apply a row-wise map in float64, block by block, into an array of the dtype of ``x``."""
    blocks = [apply(x[i : i + _BLOCK_ROWS]).astype(x.dtype, copy=False) for i in range(0, len(x), _BLOCK_ROWS)]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _roots(variances: Array, tolerance: float, power: float = 1.0) -> tuple[Array, Array]:
    """Return variances^(power/2) and their inverses; both are 0 where the share of the largest is within tolerance."""
    alive = variances > tolerance * variances.max()
    root = np.sqrt(np.where(alive, variances, 0.0))
    root = root if power == 1 else np.where(alive, root**power, 0.0)
    return root, np.divide(1.0, root, out=np.zeros_like(root), where=alive)


def _eigen(covariance: Array) -> tuple[Array, Array]:
    """Eigenvalues, largest first, and eigenvectors in columns, whose largest entry is positive on every machine."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1].clip(min=0.0), vectors[:, ::-1]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))]
    return values, vectors * np.where(largest < 0, -1.0, 1.0)


def _checked_integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise InputError(f"{name} is {value!r}; for these rows it must be an integer from {low} to {high}.")
    return int(value)
