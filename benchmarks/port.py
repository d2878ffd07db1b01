"""A stand-in for the published PyTorch port of the flow: our own re-implementation of its *way of computing*.

Not its code, which is not ours to copy. As the port does, it treats a vector as an image of d channels and one pixel,
(n, d, 1, 1): 3×3, 1×1 and 3×3 convolutions where linear layers would do (of nine taps only the middle one meets a
pixel), a log-determinant for each row in each layer, the reversal by indexing, autograd, and an optimiser that walks
through the parameters one by one. Running this file checks that it gives the golden latents and losses, which the port
itself made.

python benchmarks/port.py
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "glow_d24.npz"


class PortActNorm(nn.Module):
    """y = (x + loc)·exp(3·logscale) per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.logscale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.initialised = False

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map images and return the log-determinant (n,); the first batch sets the parameters."""
        if not self.initialised:
            with torch.no_grad():
                self.loc.copy_(-x.mean((0, 2, 3), keepdim=True))
                deviation = (x + self.loc).square().mean((0, 2, 3), keepdim=True).sqrt()
                self.logscale.copy_(torch.log(1 / (deviation + 1e-6)) / 3)
            self.initialised = True
        logs = self.logscale * 3
        log_det = logs.sum() * (x.shape[2] * x.shape[3])
        return (x + self.loc) * torch.exp(logs), log_det * torch.ones(len(x), device=x.device)


class PortNet(nn.Module):
    """The network inside a coupling, of convolutions."""

    def __init__(self, inputs: int, outputs: int, width: int = 32) -> None:
        super().__init__()
        self.linear1 = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        self.actnorm1 = PortActNorm(width)
        self.linear2 = nn.Conv2d(width, width, 1, bias=False)
        self.actnorm2 = PortActNorm(width)
        self.linear3 = nn.Conv2d(width, outputs, 3, padding=1)
        self.logscale = nn.Parameter(torch.zeros(1, outputs, 1, 1))
        for conv in (self.linear1, self.linear2):
            nn.init.normal_(conv.weight, std=0.05)
        nn.init.zeros_(self.linear3.weight)
        nn.init.zeros_(self.linear3.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to the second half."""
        x = torch.relu(self.actnorm1(self.linear1(x))[0])
        x = torch.relu(self.actnorm2(self.linear2(x))[0])
        return self.linear3(x) * torch.exp(self.logscale * 3)


class PortStep(nn.Module):
    """Actnorm, reversal, additive coupling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.actnorm = PortActNorm(channels)
        self.register_buffer("order", torch.arange(channels - 1, -1, -1))
        self.net = PortNet(channels // 2, channels - channels // 2)

    def forward(self, x: Tensor, log_det: Tensor) -> tuple[Tensor, Tensor]:
        """Map images, and add to the log-determinants (n,)."""
        x, change = self.actnorm(x)
        x = x[:, self.order]
        first, second = x.split((x.shape[1] // 2, x.shape[1] - x.shape[1] // 2), dim=1)
        return torch.cat((first, second + self.net(first)), dim=1), log_det + change


class PortFlow(nn.Module):
    """Three levels of three steps."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.ModuleList(PortStep(dim >> i) for _ in range(3)) for i in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map data (n, d) to latents (n, d) and bits per dimension ()."""
        dim, x = x.shape[1], x[:, :, None, None]
        finished, log_det = [], torch.zeros(len(x), device=x.device)
        log_prior = torch.zeros(len(x), device=x.device)
        for i, steps in enumerate(self.levels):
            for step in steps:
                x, log_det = step(x, log_det)
            x, done = x.chunk(2, dim=1) if i < 2 else (x, x)
            log_prior = log_prior - 0.5 * (done**2 + math.log(2 * math.pi)).sum((1, 2, 3))
            finished.append(done)
        z = torch.cat(finished, dim=1).flatten(1)
        return z, -(log_prior + log_det).mean() / (math.log(2) * dim)


class PortAdamW:
    """BERT's Adam with decoupled weight decay, without bias correction, one parameter after the other."""

    def __init__(self, flow: nn.Module, rate: float = 1e-3) -> None:
        self.parameters, self.rate = list(flow.named_parameters()), rate
        self.state = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.parameters}

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter."""
        for name, parameter in self.parameters:
            mean, square = self.state[name]
            mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            parameter.addcdiv_(mean, square.sqrt().add_(1e-6), value=-self.rate)
            if not name.endswith("linear3.bias"):
                parameter.add_(parameter, alpha=-self.rate * 0.01)


def port_step(flow: PortFlow, optimizer: PortAdamW, x: Tensor) -> float:
    """Take one training step on the rows ``x`` (n, d); return the objective before it."""
    flow.zero_grad()
    bits = flow(x)[1]
    bits.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
    optimizer.step()
    return bits.item()


def load_golden(flow: PortFlow, golden: dict[str, np.ndarray], state: str) -> None:
    """Put the stored parameters of that state into the flow: weights into the middle taps."""
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            _, level, step, rest = name.split(".", 3)
            rest = rest.replace("net.logscale", "net.linear3.logscale")
            value = torch.tensor(golden[f"{state}.level{level}.step{step}.{rest}"])
            if parameter.ndim == 4 and value.ndim == 2:
                middle = parameter.shape[-1] // 2
                parameter[:, :, middle, middle] = value
            else:
                parameter.copy_(value.view_as(parameter))
    for module in flow.modules():
        if isinstance(module, PortActNorm):
            module.initialised = True


def main() -> None:
    """Check the stand-in against the port's own figures."""
    golden = dict(np.load(GOLDEN))
    x = torch.tensor(golden["x"])
    flow = PortFlow(x.shape[1])
    load_golden(flow, golden, "trained")
    latents = float((flow(x)[0].detach() - torch.tensor(golden["trained.z"])).abs().max())
    load_golden(flow, golden, "initialised")
    optimizer = PortAdamW(flow)
    losses = [port_step(flow, optimizer, rows) for rows in x.split(32)]
    furthest = float(np.abs(np.array(losses) - golden["losses"]).max())
    print(f"stand-in for the port: latents within {latents:.1e} of the golden ones, losses within {furthest:.1e}")
    if latents > 1e-4 or furthest > 1e-3:
        raise SystemExit("That is too far: the stand-in does not compute what the port does.")


if __name__ == "__main__":
    main()
