import copy
import gc
import weakref

import pytest
import torch

from bertflow.flows import AdditiveCoupling, Glow, GlowConfig, fold, train
from bertflow.flows.folded import fold_arrays
from bertflow.flows.layers import COUPLINGS

CONFIGS = [
    GlowConfig(dim, levels, depth, 8, coupling, permutation, split)
    for dim in (2, 3, 5, 13, 24)
    for levels, depth in ((1, 1), (2, 3), (4, 2))
    for coupling, permutation in (
        ("additive", "reverse"),
        ("additive", "random"),
        ("affine", "reverse"),
        ("affine", "linear"),
    )
    for split in (True, False)
]


def rows(n, dim, seed=1):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 + 1


def shaken(config):
    draw = torch.Generator().manual_seed(3)
    flow = Glow(config).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    flow.initialize(rows(64, config.dim, seed=4))
    with torch.no_grad():
        for parameter in flow.parameters():  # actnorms that do more than standardise
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return flow


@pytest.mark.parametrize(
    "config",
    CONFIGS,
    ids=lambda c: f"{c.dim}-{c.levels}-{c.coupling}-{c.permutation}-{'split' if c.split else 'whole'}",
)
@torch.no_grad()
def test_folded_latents_are_the_flows(config):
    flow, x = shaken(config), rows(11, config.dim)
    before = x.clone()
    torch.testing.assert_close(fold(flow)(x), flow(x)[0], rtol=1e-9, atol=1e-9)
    assert torch.equal(x, before)
    assert fold(flow)(x[:0]).shape == (0, config.dim)


@torch.no_grad()
def test_a_coupling_without_a_folded_form_goes_through_its_layers(monkeypatch):
    class Halved(AdditiveCoupling):
        def _change(self, second, answer):
            return super()._change(second, answer / 2)

    monkeypatch.setitem(COUPLINGS, "halved", Halved)
    flow, x = shaken(GlowConfig(6, coupling="halved")), rows(5, 6)
    torch.testing.assert_close(fold(flow)(x), flow(x)[0], rtol=0, atol=0)
    with pytest.raises(ValueError, match="'halved' has no folded form; additive and affine have"):
        fold_arrays({}, "halved")


@torch.no_grad()
def test_a_mean_far_from_zero_costs_no_digits():
    x = rows(100, 24).float() + 1e4
    flow = shaken(GlowConfig(24))
    flow.initialize(x.double())
    exact = flow(x.double())[0]
    flow.float()
    wrong, allowed = (float((found - exact).abs().max()) for found in (fold(flow)(x), flow(x)[0]))
    assert wrong < 2 * allowed + 1e-6


@torch.no_grad()
def test_folding_changes_nothing_and_is_a_snapshot():
    flow, x = shaken(GlowConfig(6)), rows(5, 6)
    before = copy.deepcopy(flow.state_dict())
    folded = fold(flow)
    z = folded(x)
    assert not z.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in flow.state_dict().items())
    for parameter in flow.parameters():
        parameter.add_(1.0)
    assert torch.equal(folded(x), z)


@torch.no_grad()
def test_it_is_folded_once_until_it_changes():
    flow, x = shaken(GlowConfig(6)), rows(5, 6)
    folded = fold(flow)
    assert fold(flow) is folded
    assert fold(copy.deepcopy(flow)) is not folded
    flow.levels[0][1].actnorm.loc.add_(1.0)
    torch.testing.assert_close(fold(flow)(x), flow(x)[0], rtol=1e-9, atol=1e-9)
    train(flow, rows(200, 6))
    torch.testing.assert_close(fold(flow)(x), flow(x)[0], rtol=1e-9, atol=1e-9)
    flow.load_state_dict(shaken(GlowConfig(6, seed=1)).state_dict())
    torch.testing.assert_close(fold(flow)(x), flow(x)[0], rtol=1e-9, atol=1e-9)
    flow.float()
    assert fold(flow)(x.float()).dtype == torch.float32


def test_a_flow_that_is_gone_leaves_nothing_behind():
    flow = shaken(GlowConfig(6))
    fold(flow)
    gone = weakref.ref(flow)
    del flow
    gc.collect()
    assert gone() is None
