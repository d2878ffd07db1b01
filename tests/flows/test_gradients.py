import math

import pytest
import torch

from bertflow.flows import Glow, GlowConfig
from bertflow.flows.gradients import AdditiveObjective, Objective, objective
from bertflow.flows.optimizer import Adam
from bertflow.flows.update import Update

CONFIGS = [
    GlowConfig(dim, levels, depth, 8, split=split)
    for dim in (2, 3, 5, 13, 24)
    for levels, depth in ((1, 1), (2, 3), (3, 2))
    for split in (True, False)
]


def shaken(config, dtype=torch.float64):
    """A flow in which no parameter is at its special first value."""
    draw = torch.Generator().manual_seed(3)
    flow = Glow(config).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    flow.initialize(rows(64, config.dim, seed=4))
    return flow.to(dtype)


def rows(n, dim, seed=1):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 + 1


def both(flow, x):
    """Objective and gradients by hand, and by autograd."""
    for computed, before in ((AdditiveObjective(flow), math.nan), (Objective(flow), 1.0)):
        with computed.parameters as parameters:
            parameters.gradients.fill_(before)  # what was there is of no account
            bits = computed(x)
            found = parameters.named(parameters.gradients)
            found = [g.flip(parameters.mirrored.get(name, [])).flatten() for name, g in found.items()]
            yield bits, torch.cat(found)


@pytest.mark.parametrize(
    "config", CONFIGS, ids=lambda c: f"{c.dim}-{c.levels}-{c.depth}-{'split' if c.split else 'whole'}"
)
@pytest.mark.parametrize("n", [1, 17])
def test_gradients_by_hand_are_those_of_autograd(config, n):
    (bits, gradients), (expected_bits, expected) = both(shaken(config), rows(n, config.dim))
    torch.testing.assert_close(bits, expected_bits, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, expected, rtol=1e-9, atol=1e-9)
    assert not bits.requires_grad


def test_the_objective_alone():
    flow, x = shaken(GlowConfig(13)), rows(17, 13)
    expected = float(flow.bits_per_dim(x).detach())
    for computed in (AdditiveObjective(flow), Objective(flow)):
        with computed.parameters as parameters:
            assert float(computed.bits(x)) == pytest.approx(expected, abs=1e-12)
            assert not parameters.gradients.any()


@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_float32_keeps_its_digits_where_the_mean_is_far_from_zero(mean):
    x = rows(32, 24) + mean
    flow = shaken(GlowConfig(24))
    flow.initialize(x)
    _, (_, exact) = both(flow, x.float().double())
    (_, by_hand), (_, by_autograd) = both(flow.float(), x.float())
    wrong, allowed = (float((found - exact).norm() / exact.norm()) for found in (by_hand, by_autograd))
    assert wrong < 2 * allowed + 1e-6


@pytest.mark.parametrize("permutation", ["reverse", "random", "linear"])
@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_other_flows_go_through_autograd(coupling, permutation):
    flow = Glow(GlowConfig(6, coupling=coupling, permutation=permutation))
    chosen = type(objective(flow))
    assert chosen is (AdditiveObjective if (coupling, permutation) == ("additive", "reverse") else Objective)


@pytest.mark.parametrize("permutation", ["reverse", "random", "linear"])
@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_a_step_looks_at_no_value(coupling, permutation):
    """On the meta device there are none: what runs there can be captured as a CUDA graph."""
    flow = Glow(GlowConfig(13, coupling=coupling, permutation=permutation)).to("meta")
    chosen = objective(flow, no_decay=("linear3.bias",))
    with chosen.parameters as parameters:
        update = Update(chosen, Adam(parameters, 0.99, 0.01, bias_correction=True, clip_norm=1.0))
        assert update(torch.empty(7, 13, device="meta"), 1e-3).shape == ()
