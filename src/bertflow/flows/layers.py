"""The invertible layers. Each maps ``forward(x) -> (z, log_det)``, has an exact ``inverse(z)``, and changes no state.

Data-dependent parameters are set once by ``initialize_(x)``, which turns ``x`` into the layer's output, so that a stack of
layers is initialised in one pass and in the memory of ``x``. ``log_det`` is the log of the absolute Jacobian determinant of
each row, shape (n,).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bertflow.errors import InputError
from bertflow.flows.reducer import ALONE, Reducer

FEW = 2**17  # numbers at a time, so that intermediate results stay in the processor's cache
SCALE_FACTOR = 3.0  # scales are exp(3·s): the reference code's factor, which only speeds their learning


class Bijection(nn.Module):
    """An invertible map of (n, d) rows."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (n, d) to (n, d) and the log-determinant (n,)."""
        raise NotImplementedError

    def inverse(self, z: Tensor) -> Tensor:
        """Undo ``forward``."""
        raise NotImplementedError

    @torch.no_grad()
    def initialize_(self, x: Tensor, reducer: Reducer = ALONE) -> Tensor:
        """Set data-dependent parameters from ``x`` (n, d), turn it into ``forward(x)[0]``, and return it.

        With a ``reducer``, ``x`` is this process's part of the rows, and the parameters are those of all of them.
        """
        for rows in _few(x):
            rows.copy_(self(rows)[0])
        return x


class ActNorm(Bijection):
    """Per-dimension shift and scale, y = (x + loc)·exp(3·logscale), from Glow (Kingma & Dhariwal, 2018).

    Args:
        dim: Number of dimensions d ≥ 1.

    Example:
        >>> layer = ActNorm(2)
        >>> layer.initialize_(torch.tensor([[0.0, 10.0], [2.0, 30.0]])).round(decimals=3)
        tensor([[-1., -1.],
                [ 1.,  1.]])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(dim))
        self.logscale = nn.Parameter(torch.zeros(dim))

    @torch.no_grad()
    def initialize_(self, x: Tensor, reducer: Reducer = ALONE) -> Tensor:
        """Give each dimension of ``x`` zero mean and unit variance; one that does not vary is scaled like the others.

        The statistics are taken in float64 (float32 squares overflow at 1e20), and the guard added to the deviation is
        relative to the deviation of all dimensions. (The reference code's is 1e-6 at every scale of the data.) A constant
        dimension is not scaled by the guard alone: it would get the scale 1e6 in each actnorm of a stack, and overflow at
        the first row that differs.
        """
        mean, deviation = _moments(x, reducer)
        if not deviation.isfinite().all():  # without rows it is 0 / 0
            raise InputError(
                f"An actnorm is initialised from finite rows; x has shape {tuple(x.shape)} and no rows, NaN or infinity."
            )
        typical = deviation.square().mean().sqrt()
        guarded = torch.where(deviation > 1e-6 * typical, deviation + 1e-6 * typical, typical)
        scale = 1 / guarded if typical > 1e-30 else torch.ones_like(deviation)
        self.loc.copy_(-mean)
        self.logscale.copy_(scale.log() / SCALE_FACTOR)
        return x.add_(self.loc).mul_(torch.exp(SCALE_FACTOR * self.logscale))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.normalize(x), (SCALE_FACTOR * self.logscale.sum()).expand(x.shape[0])

    def normalize(self, x: Tensor) -> Tensor:
        """Return the output alone, for use inside a network."""
        return (x + self.loc) * torch.exp(SCALE_FACTOR * self.logscale)

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        return z * torch.exp(-SCALE_FACTOR * self.logscale) - self.loc


def _few(x: Tensor) -> Sequence[Tensor]:
    """Return the rows in blocks: small ones on a CPU, all rows together elsewhere."""
    return x.split(max(1, FEW // x.shape[1])) if x.device.type == "cpu" else (x,)


def _moments(x: Tensor, reducer: Reducer) -> tuple[Tensor, Tensor]:
    """Mean and (biased) standard deviation per dimension of all processes' rows, in float64."""
    parts = _few(x)
    wide = torch.empty_like(parts[0], dtype=torch.float64)
    count = reducer.sum(torch.tensor(float(len(x)), dtype=torch.float64, device=x.device))
    mean = reducer.sum(torch.stack([rows.sum(0, dtype=torch.float64) for rows in parts]).sum(0)) / count
    squares = [torch.sub(rows, mean, out=wide[: len(rows)]).square_().sum(0) for rows in parts]
    return mean, (reducer.sum(torch.stack(squares).sum(0)) / count).sqrt_()  # x.std takes five times as long


class Permutation(Bijection):
    """A fixed reordering of the dimensions.

    Args:
        dim: Number of dimensions.
        seed: None reverses them (what the reference code does); an integer draws a random order from this seed (what the
            paper says).

    Example:
        >>> Permutation(3)(torch.tensor([[1.0, 2.0, 3.0]]))[0]
        tensor([[3., 2., 1.]])
    """

    order: Tensor
    back: Tensor

    def __init__(self, dim: int, seed: int | None = None) -> None:
        super().__init__()
        if seed is None:
            order = torch.arange(dim).flip(0)
        else:
            order = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))
        self.reverses = seed is None
        self.register_buffer("order", order)
        self.register_buffer("back", order.argsort(), persistent=False)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.back = self.order.argsort()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.reorder(x), x.new_zeros(()).expand(x.shape[0])

    def reorder(self, x: Tensor) -> Tensor:
        """Return the output alone."""
        return x.flip(1) if self.reverses else x.index_select(1, self.order)  # flip and its gradient are faster

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        return z.flip(1) if self.reverses else z.index_select(1, self.back)


class InvertibleLinear(Bijection):
    """A learned linear map z = x·Wᵀ with W = P·L·U: Glow's generalisation of a permutation.

    L has a unit diagonal and U the diagonal sign·exp(log_diagonal), so W stays invertible and log|det W| = Σ log_diagonal.
    Starts as a random rotation.

    Args:
        dim: Number of dimensions.
        seed: Seed of the rotation.
    """

    pivots: Tensor
    sign: Tensor

    def __init__(self, dim: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        rotation, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
        pivots, lower, upper = torch.linalg.lu(rotation)
        diagonal = upper.diagonal()
        self.register_buffer("pivots", pivots.argmax(1))  # (P·y)_i = y_{pivots_i}
        self.register_buffer("sign", diagonal.sign().float())
        self.lower = nn.Parameter(lower.tril(-1).float())
        self.upper = nn.Parameter(upper.triu(1).float())
        self.log_diagonal = nn.Parameter(diagonal.abs().log().float())

    def _triangles(self) -> tuple[Tensor, Tensor]:
        identity = torch.eye(len(self.sign), device=self.lower.device, dtype=self.lower.dtype)
        return self.lower.tril(-1) + identity, self.upper.triu(1) + torch.diag(self.sign * self.log_diagonal.exp())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        lower, upper = self._triangles()
        z = (x @ upper.T @ lower.T).index_select(1, self.pivots)
        return z, self.log_diagonal.sum().expand(x.shape[0])

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        lower, upper = self._triangles()
        y = z.index_select(1, self.pivots.argsort())
        y = torch.linalg.solve_triangular(lower.T, y, upper=True, left=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper.T, y, upper=False, left=False)


class _ScaledLinear(nn.Module):
    """Linear layer with output (Wx + bias)·exp(3·logscale). It starts at zero, so that a coupling starts as the identity."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.logscale = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.exp(SCALE_FACTOR * self.logscale)  # applied to the weights, which are fewer than the outputs
        return nn.functional.linear(x, self.weight * scale[:, None], self.bias * scale)


class Conditioner(nn.Module):
    """The network g inside a coupling: linear → actnorm → ReLU, twice, then a zero-initialised linear.

    Args:
        inputs: Dimensions it reads.
        outputs: Dimensions of its output.
        width: Hidden units.
        generator: Draws the first weights from N(0, 0.05²).
    """

    def __init__(self, inputs: int, outputs: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        # skip_init: nn.Linear's own first weights come from the global generator
        self.linear1 = nn.utils.skip_init(nn.Linear, inputs, width, bias=False)
        self.actnorm1 = ActNorm(width)
        self.linear2 = nn.utils.skip_init(nn.Linear, width, width, bias=False)
        self.actnorm2 = ActNorm(width)
        self.linear3 = _ScaledLinear(width, outputs)
        for linear in (self.linear1, self.linear2):
            nn.init.normal_(linear.weight, std=0.05, generator=generator)

    @torch.no_grad()
    def initialize(self, x: Tensor, reducer: Reducer = ALONE) -> Tensor:
        """Initialise both actnorms from ``x`` (n, inputs), which is not changed; return the last layer's input (n, width)."""
        hidden = self.actnorm1.initialize_(self.linear1(x), reducer).relu_()
        return self.actnorm2.initialize_(self.linear2(hidden), reducer).relu_()

    def answers_nothing(self) -> bool:
        """Whether g(x) = 0 for all x, as before training."""
        return not (self.linear3.weight.any() or self.linear3.bias.any())

    def forward(self, x: Tensor) -> Tensor:
        """Return g(x), (n, outputs)."""
        hidden = torch.relu(self.actnorm1.normalize(self.linear1(x)))
        return self.linear3(torch.relu(self.actnorm2.normalize(self.linear2(hidden))))


class _Coupling(Bijection):
    """Changes the second part of the dimensions by a function of the first part, which does not change."""

    outputs_per_dimension: int

    def __init__(self, dim: int, width: int = 32, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.kept = dim // 2
        self.changed = dim - self.kept
        generator = generator or torch.Generator().manual_seed(0)
        self.net = Conditioner(self.kept, self.outputs_per_dimension * self.changed, width, generator)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.split((self.kept, self.changed), dim=1)
        second, log_det = self._change(second, self.net(first))
        return torch.cat((first, second), dim=1), log_det

    @torch.no_grad()
    def initialize_(self, x: Tensor, reducer: Reducer = ALONE) -> Tensor:
        first, second = x.split((self.kept, self.changed), dim=1)
        hidden = self.net.initialize(first, reducer)
        if not self.net.answers_nothing():
            second.copy_(self._change(second, self.net.linear3(hidden))[0])
        return x

    def _change(self, second: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new second part and the log-determinant (n,), given the network's output for the first part."""
        raise NotImplementedError


class AdditiveCoupling(_Coupling):
    """[x1, x2] → [x1, x2 + g(x1)]: the volume stays the same, log-det 0 (NICE; the paper's choice).

    Args:
        dim: Number of dimensions d ≥ 2; for odd d the second part is the larger.
        width: Hidden units of g.
        generator: Draws g's first weights.
    """

    outputs_per_dimension = 1

    def _change(self, second: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        return second + answer, second.new_zeros(()).expand(len(second))

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        first, second = z.split((self.kept, self.changed), dim=1)
        return torch.cat((first, second - self.net(first)), dim=1)


class AffineCoupling(_Coupling):
    """[x1, x2] → [x1, (x2 + shift)·s] with s between 1/2 and 2, shift and s functions of x1 (Real NVP).

    The reference code offers s = sigmoid(scale + 2). It can come near 0, and then the inverse overflows. The s here,
    2^tanh(scale), is bounded, and the coupling starts as the identity.

    Args:
        dim: Number of dimensions d ≥ 2; for odd d the second part is the larger.
        width: Hidden units of the network.
        generator: Draws the network's first weights.
    """

    outputs_per_dimension = 2

    def _shift_and_log(self, answer: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale = answer.chunk(2, dim=1)
        return shift, torch.tanh(scale) * 0.6931471805599453

    def _change(self, second: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        shift, log = self._shift_and_log(answer)
        return (second + shift) * log.exp(), log.sum(1)

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        first, second = z.split((self.kept, self.changed), dim=1)
        shift, log = self._shift_and_log(self.net(first))
        return torch.cat((first, second * (-log).exp() - shift), dim=1)


#: By their names in ``GlowConfig``. A new one is written here, and in ``bertflow.flows.folded`` to be applied faster.
COUPLINGS: dict[str, type[_Coupling]] = {"additive": AdditiveCoupling, "affine": AffineCoupling}
