"""Glow without images: the normalizing flow of BERT-flow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import torch
from torch import Tensor, nn

from bertflow.errors import InputError
from bertflow.flows.layers import COUPLINGS, ActNorm, Bijection, InvertibleLinear, Permutation
from bertflow.flows.reducer import ALONE, Reducer

PERMUTATIONS = ("reverse", "random", "linear")


@dataclass(frozen=True)
class GlowConfig:
    """The shape of a flow.

    Args:
        dim: Dimensions d ≥ 2 of the data, an even or odd number.
        levels: Levels L. After each level but the last, half of the dimensions are finished latents. A level needs two
            dimensions: for small d there are fewer levels.
        depth: Steps K of (actnorm, permutation, coupling) in each level.
        width: Hidden units of the couplings' networks.
        coupling: ``"additive"`` (the paper) or ``"affine"``.
        permutation: ``"reverse"`` (the reference code), ``"random"`` (the paper's text) or ``"linear"`` (Glow's PLU map).
        split: False keeps all dimensions to the end.
        seed: Of the networks' first weights and of random permutations; the global generator is not used.
    """

    dim: int
    levels: int = 3
    depth: int = 3
    width: int = 32
    coupling: str = "additive"
    permutation: str = "reverse"
    split: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built."""
        for name, least in (("dim", 2), ("levels", 1), ("depth", 1), ("width", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise InputError(f"A flow's {name} must be an integer of at least {least}; it was {value!r}.")
        if self.coupling not in COUPLINGS:
            raise InputError(f"Unknown coupling {self.coupling!r}; choose from {', '.join(COUPLINGS)}.")
        if self.permutation not in PERMUTATIONS:
            raise InputError(f"Unknown permutation {self.permutation!r}; choose from {', '.join(PERMUTATIONS)}.")

    @property
    def is_the_papers(self) -> bool:
        """Whether couplings and permutations are the paper's, whose gradients are computed by hand."""
        return self.coupling == "additive" and self.permutation == "reverse"

    def level_dims(self) -> list[int]:
        """Return the number of dimensions that each level works on, such as [768, 384, 192]."""
        dims = [self.dim]
        while len(dims) < self.levels and (not self.split or dims[-1] >= 3):
            dims.append(dims[-1] - dims[-1] // 2 if self.split else dims[-1])
        return dims


class Step(Bijection):
    """One step of flow: actnorm → permutation → coupling."""

    def __init__(self, dim: int, config: GlowConfig, generator: torch.Generator) -> None:
        super().__init__()
        seed = int(torch.randint(2**31, (), generator=generator))
        self.actnorm = ActNorm(dim)
        self.permutation: Bijection = (
            InvertibleLinear(dim, seed)
            if config.permutation == "linear"
            else Permutation(dim, seed if config.permutation == "random" else None)
        )
        self.coupling = COUPLINGS[config.coupling](dim, config.width, generator)

    def _layers(self) -> tuple[Bijection, ...]:
        return self.actnorm, self.permutation, self.coupling

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        total = x.new_zeros(())
        for layer in self._layers():
            x, log_det = layer(x)
            total = total + log_det
        return x, total

    def inverse(self, z: Tensor) -> Tensor:  # noqa: D102
        for layer in reversed(self._layers()):
            z = layer.inverse(z)
        return z

    @torch.no_grad()
    def initialize_(self, x: Tensor, reducer: Reducer = ALONE) -> Tensor:  # noqa: D102
        for layer in self._layers():
            layer.initialize_(x, reducer)
        return x


class Glow(Bijection):
    """A multi-level flow from data (n, d) to standard normal latents (n, d), trained by maximum likelihood.

    Kingma & Dhariwal, *Glow* (2018), as used by Li et al., *On the Sentence Embeddings from Pre-trained Language Models*
    (2020). z = [second half after level 0, second half after level 1, …, rest].

    Args:
        config: The flow's shape.

    Example:
        >>> flow = Glow(GlowConfig(dim=5))
        >>> x = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
        >>> flow.initialize(x)
        >>> z, log_det = flow(x)
        >>> bool(torch.allclose(flow.inverse(z), x, atol=1e-5))
        True
    """

    def __init__(self, config: GlowConfig) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        self.levels = nn.ModuleList(
            nn.ModuleList(Step(dim, config, generator) for _ in range(config.depth)) for dim in config.level_dims()
        )
        dims = config.level_dims()
        #: how many dimensions are finished after each level; after the last level, all
        self.leaving = [a - b for a, b in pairwise(dims)] + [dims[-1]]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map data to latents (n, d) and log-determinants (n,)."""
        finished, total = [], x.new_zeros(x.shape[0])
        for steps, leaving in zip(self.levels, self.leaving, strict=True):
            for step in steps:  # type: ignore[attr-defined]
                x, log_det = step(x)
                total = total + log_det
            x, done = x.split((x.shape[1] - leaving, leaving), dim=1)
            finished.append(done)
        return torch.cat(finished, dim=1), total

    def inverse(self, z: Tensor) -> Tensor:
        """Map latents back to data, exactly except for rounding."""
        finished = z.split(self.leaving, dim=1)
        x = z[:, :0]
        for steps, done in zip(reversed(self.levels), reversed(finished), strict=True):
            x = torch.cat((x, done), dim=1)
            for step in reversed(steps):  # type: ignore[call-overload]
                x = step.inverse(x)
        return x

    @torch.no_grad()
    def initialize(self, x: Tensor, reducer: Reducer = ALONE) -> None:
        """Set every actnorm from ``x`` (n, d), so that its output has mean 0 and standard deviation 1 there.

        With a ``reducer``, ``x`` is this process's part of the rows.
        """
        x = x.clone()
        for steps, leaving in zip(self.levels, self.leaving, strict=True):
            for step in steps:  # type: ignore[attr-defined]
                step.initialize_(x, reducer)
            x = x[:, : x.shape[1] - leaving]

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log-density (n,) of ``x`` in nats: log N(z; 0, I) + log|det|."""
        z, log_det = self(x)
        return log_det - 0.5 * (z.square().sum(1) + self.config.dim * math.log(2 * math.pi))

    def bits_per_dim(self, x: Tensor) -> Tensor:
        """Return the training objective (), the mean of −log p / (d·ln 2). It may be negative, since p is a density."""
        return -self.log_prob(x).mean() / (self.config.dim * math.log(2))

    @torch.no_grad()
    def sample(self, n: int, *, seed: int = 0, temperature: float = 1.0) -> Tensor:
        """Draw ``n`` rows from the fitted density; with a temperature below one they are closer to its centre."""
        weight = next(self.parameters())
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(n, self.config.dim, generator=generator, dtype=torch.float64) * temperature
        return self.inverse(z.to(weight))
