"""A fitted flow as a short list of plain arrays and operations, for all that applies it and does not train it.

``fold_arrays`` makes the list from the flow's saved arrays. numpy, torch and ONNX apply the same list: see
``bertflow.runtime.portable``, ``bertflow.flows.fold`` and ``bertflow.integrations.onnx_graph``. It needs numpy alone.

A new coupling gets an operation here and a row in ``COUPLINGS``. Without one, torch and ONNX use the readable layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from bertflow.errors import InputError

Array: TypeAlias = Any  # of numpy or of torch
SCALE_FACTOR = 3.0  # of bertflow.flows.layers: scales are exp(3·s)


def put(x: Array, columns: slice, part: Array) -> Array:
    """Return ``x`` with these columns replaced, in place."""
    x[:, columns] = part
    return x


def _add_product(x: Array, columns: slice, a: Array, b: Array) -> Array:
    part = x[:, columns]
    part += a @ b
    return x


#: What the operations ask of numpy. ``bertflow.flows.folding.TORCH`` holds the same for torch.
NUMPY = SimpleNamespace(
    linear=lambda bias, x, weight: x @ weight + bias,
    relu=lambda x: np.maximum(x, 0, out=x),
    add_product=_add_product,
    put=put,
    take=lambda x, axis, order: x.take(order, axis),
    exp2=np.exp2,
    tanh=np.tanh,
)


@dataclass(frozen=True)
class Operation:
    """One operation on rows (n, d), which may change them in place."""

    def __call__(self, x: Array, xp: Any) -> Array:
        """Return the new rows (n, d), computed by ``xp``: ``NUMPY`` or ``TORCH``."""
        raise NotImplementedError

    def map(self, function: Callable[[Any], Any]) -> Operation:
        """Return the same operation with ``function`` applied to each array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{k: v if isinstance(v, slice) else function(v) for k, v in values.items()})


@dataclass(frozen=True)
class Normalize(Operation):
    """(x + shift)·scale, both (d,), in new memory."""

    shift: Array
    scale: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        x = x + self.shift
        x *= self.scale
        return x


@dataclass(frozen=True)
class Reorder(Operation):
    """Neighbouring columns in a new order (k,)."""

    columns: slice
    order: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        return xp.put(x, self.columns, xp.take(x[:, self.columns], 1, self.order))


@dataclass(frozen=True)
class Mix(Operation):
    """Neighbouring columns, multiplied by a matrix (k, k)."""

    columns: slice
    matrix: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        return xp.put(x, self.columns, x[:, self.columns] @ self.matrix)


@dataclass(frozen=True)
class Add(Operation):
    """The additive coupling: a network reads some columns, and its answer is added to others.

    Args:
        reads: The k columns that the network reads.
        changes: The m columns that change.
        w1: Weights (k, h) of the first layer.
        b1: Its bias (h,).
        w2: Weights (h, h) of the second layer.
        b2: Its bias (h,).
        w3: Weights (h, m) of the third layer.
    """

    reads: slice
    changes: slice
    w1: Array
    b1: Array
    w2: Array
    b2: Array
    w3: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        return xp.add_product(x, self.changes, self._hidden(x, xp), self.w3)

    def _hidden(self, x: Array, xp: Any) -> Array:
        hidden = xp.relu(xp.linear(self.b1, x[:, self.reads], self.w1))
        return xp.relu(xp.linear(self.b2, hidden, self.w2))


@dataclass(frozen=True)
class AddAndScale(Add):
    """The affine coupling: the network answers (n, 2m) what to add, then s of the scale 2^tanh(s).

    Args:
        b3: Bias (2m,) of the third layer.
    """

    b3: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        answer, m = xp.linear(self.b3, self._hidden(x, xp), self.w3), self.changes.stop - self.changes.start
        return xp.put(x, self.changes, (x[:, self.changes] + answer[:, :m]) * xp.exp2(xp.tanh(answer[:, m:])))


@dataclass(frozen=True)
class Finish(Operation):
    """The columns in the order (d,) of the latents, times the scale (d,), plus the shift (d,)."""

    order: Array
    scale: Array
    shift: Array

    def __call__(self, x: Array, xp: Any) -> Array:  # noqa: D102
        z = xp.take(x, 1, self.order)
        z *= self.scale
        z += self.shift
        return z


@dataclass(frozen=True)
class FoldedFlow:
    """The operations that map data (n, d) to latents (n, d), one after the other."""

    operations: tuple[Operation, ...]

    def __call__(self, x: Array, xp: Any = NUMPY) -> Array:
        """Map data (n, d), of the arrays' dtype, to latents (n, d); ``x`` itself stays as it is."""
        for operation in self.operations:
            x = operation(x, xp)
        return x

    def map(self, function: Callable[[Any], Any]) -> FoldedFlow:
        """Return the same operations with ``function`` applied to each array."""
        return FoldedFlow(tuple(operation.map(function) for operation in self.operations))


@dataclass(frozen=True)
class _Pending:
    """What is not applied yet: dimension j of the flow is ``scale[j]`` times column ``order[j]``, plus ``shift[j]``."""

    order: Array
    scale: Array
    shift: Array

    def take(self, which: Any) -> _Pending:
        return _Pending(self.order[which], self.scale[which], self.shift[which])

    def columns(self) -> slice:
        """The columns, which are neighbours, in rising or falling order."""
        return slice(int(self.order.min()), int(self.order.max()) + 1)

    def ranks(self) -> Array:
        """The dimensions in the order of their columns."""
        return self.order.argsort()


def _join(parts: Sequence[_Pending]) -> _Pending:
    return _Pending(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(_Pending)))


def fold_arrays(arrays: Mapping[str, Array], coupling: str = "additive") -> FoldedFlow:
    """Fold a flow: all that is linear is multiplied out once, so that little more than the networks remains.

    Actnorms only scale and shift, and reversals only rename. So the columns stay as the first actnorm left them, and the
    networks' weights include the rest. The first actnorm is applied to the rows, because a mean far from zero loses digits
    when it is folded into weights. So are random orders, because slices of neighbouring columns are faster than others.

    Args:
        arrays: The flow's parameters and buffers by their names, such as ``levels.0.0.actnorm.loc``.
        coupling: One of ``COUPLINGS``.

    Returns:
        Operations on arrays of the flow's dtype. They are computed in float64.
    """
    if coupling not in COUPLINGS:
        raise InputError(f"The coupling {coupling!r} has no folded form; {' and '.join(COUPLINGS)} have.")
    steps = _steps(arrays)
    dims = [len(step["actnorm.loc"]) for step in steps]
    operations: list[Operation] = [Normalize(steps[0]["actnorm.loc"], _scale(steps[0], "actnorm"))]
    active, finished = _Pending(np.arange(dims[0]), np.ones(dims[0]), np.zeros(dims[0])), []
    for i, (step, after) in enumerate(zip(steps, [*dims[1:], 0], strict=True)):
        if i:
            scale = _scale(step, "actnorm")
            active = _Pending(active.order, active.scale * scale, (active.shift + step["actnorm.loc"]) * scale)
        active = _permute(active, step, operations)
        kept, changed = active.take(slice(dims[i] // 2)), active.take(slice(dims[i] // 2, None))
        active = _join([kept, COUPLINGS[coupling](kept, changed, step, operations)])
        finished.append(active.take(slice(after, None)))
        active = active.take(slice(after))
    last = _join(finished)
    operations.append(Finish(last.order, last.scale, last.shift))
    dtype = arrays["levels.0.0.actnorm.loc"].dtype
    return FoldedFlow(tuple(operations)).map(lambda array: np.array(array, _dtype(array, dtype), order="C"))


def _steps(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The arrays of each step by their names in it, floats in float64."""
    steps: dict[tuple[int, ...], dict[str, Array]] = {}
    for name, array in arrays.items():
        _, level, step, rest = name.split(".", 3)
        steps.setdefault((int(level), int(step)), {})[rest] = np.asarray(array, _dtype(array, np.float64))
    return [steps[place] for place in sorted(steps)]


def _dtype(array: Array, dtype: Any) -> Any:
    """The dtype asked for; that of the array where it holds integers."""
    return dtype if np.issubdtype(array.dtype, np.floating) else array.dtype


def _scale(step: dict[str, Array], layer: str) -> Array:
    return np.exp(SCALE_FACTOR * step[f"{layer}.logscale"])


def _permute(active: _Pending, step: dict[str, Array], operations: list[Operation]) -> _Pending:
    """Rename the dimensions where their columns stay neighbours; otherwise append an operation."""
    columns = np.sort(active.order)
    if "permutation.order" not in step:
        matrix = _plu(step).T
        operations.append(Mix(active.columns(), (active.scale[:, None] * matrix)[active.ranks()]))
        return _Pending(columns, np.ones(len(columns)), active.shift @ matrix)
    active = active.take(step["permutation.order"])
    if (np.abs(np.diff(active.order)) == 1).all():
        return active
    operations.append(Reorder(active.columns(), active.order - columns[0]))
    return replace(active, order=columns)


def _plu(step: dict[str, Array]) -> Array:
    """W = P·L·U of Glow's linear map z = x·Wᵀ."""
    lower, upper, sign, log_diagonal, pivots = (
        step[f"permutation.{name}"] for name in ("lower", "upper", "sign", "log_diagonal", "pivots")
    )
    lower, upper = np.tril(lower, -1) + np.eye(len(sign)), np.triu(upper, 1) + np.diag(sign * np.exp(log_diagonal))
    return (lower @ upper)[pivots]


def _network(kept: _Pending, step: dict[str, Array]) -> tuple[dict[str, Array], Array, Array]:
    """The first two layers, with what is pending of their inputs folded in, then weights and bias of the third."""
    net = {name.removeprefix("coupling.net."): array for name, array in step.items()}
    s1, s2, s3 = (_scale(net, layer) for layer in ("actnorm1", "actnorm2", "linear3"))
    w1 = net["linear1.weight"].T * s1
    layers = {
        "w1": (w1 * kept.scale[:, None])[kept.ranks()],
        "b1": net["actnorm1.loc"] * s1 + kept.shift @ w1,
        "w2": net["linear2.weight"].T * s2,
        "b2": net["actnorm2.loc"] * s2,
    }
    return layers, net["linear3.weight"].T * s3, net["linear3.bias"] * s3


def _fold_additive(kept: _Pending, changed: _Pending, step: dict[str, Array], operations: list[Operation]) -> _Pending:
    """Append the operation; the third layer's bias is added to the pending shift."""
    layers, w3, b3 = _network(kept, step)
    w3 = (w3 / changed.scale)[:, changed.ranks()]
    operations.append(Add(kept.columns(), changed.columns(), w3=w3, **layers))
    return replace(changed, shift=changed.shift + b3)


def _fold_affine(kept: _Pending, changed: _Pending, step: dict[str, Array], operations: list[Operation]) -> _Pending:
    """Append the operation; it adds the pending shift too, which must be there before the scaling."""
    layers, w3, b3 = _network(kept, step)
    m, ranks = len(changed.scale), changed.ranks()
    w3[:, :m] /= changed.scale
    b3[:m] = (b3[:m] + changed.shift) / changed.scale
    both = np.concatenate((ranks, m + ranks))
    operations.append(AddAndScale(kept.columns(), changed.columns(), w3=w3[:, both], b3=b3[both], **layers))
    return replace(changed, shift=np.zeros(m))


#: By a coupling's name, the function that appends its operation and returns what is then pending of the changed part.
COUPLINGS = {"additive": _fold_additive, "affine": _fold_affine}
