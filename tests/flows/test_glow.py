import doctest
import importlib
import math
import pkgutil

import numpy as np
import pytest
import torch

import bertflow.flows
from bertflow.errors import InputError
from bertflow.flows import Glow, GlowConfig


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(config, seed=2):
    """A flow in which no parameter is at its special first value."""
    draw = torch.Generator().manual_seed(seed)
    flow = Glow(config).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    flow.initialize(normal(64, config.dim, seed=4) * 2 + 1)  # or small networks draw only dead ReLUs
    return flow


CONFIGS = [
    GlowConfig(dim, levels, 1 + (levels == 1), 8, coupling, permutation, split)
    for dim in (2, 3, 5, 8, 13, 24)
    for levels in (1, 2, 3, 4)
    for coupling in ("additive", "affine")
    for permutation in ("reverse", "random", "linear")
    for split in (True, False)
    if levels <= 2 or dim > 3 or not split  # else the further levels are left out
]


@pytest.fixture(
    scope="module",
    params=CONFIGS,
    ids=lambda c: f"{c.dim}-{c.levels}-{c.coupling}-{c.permutation}-{'split' if c.split else 'whole'}",
)
def flow(request):
    return randomised(request.param)


def test_inverse_undoes_forward(flow):
    x = normal(11, flow.config.dim)
    with torch.no_grad():
        z, log_det = flow(x)
        assert z.shape == x.shape
        assert log_det.shape == (11,)
        torch.testing.assert_close(flow.inverse(z), x, rtol=0, atol=1e-9)


def test_log_det_is_that_of_the_jacobian(flow):
    x = normal(2, flow.config.dim)
    jacobians = torch.autograd.functional.jacobian(lambda x: flow(x)[0].sum(0), x, vectorize=True).transpose(0, 1)
    with torch.no_grad():
        torch.testing.assert_close(flow(x)[1], torch.linalg.slogdet(jacobians).logabsdet, rtol=0, atol=1e-9)


def test_gradients_reach_every_parameter(flow):
    flow.zero_grad()
    flow.bits_per_dim(normal(64, flow.config.dim)).backward()
    for name, parameter in flow.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_state_dict_carries_the_density(flow):
    other = Glow(GlowConfig(**{**vars(flow.config), "seed": 99})).double()
    other.load_state_dict(flow.state_dict())
    x = normal(5, flow.config.dim)
    with torch.no_grad():
        assert torch.equal(flow.log_prob(x), other.log_prob(x))
        assert torch.equal(flow.inverse(x), other.inverse(x))


def test_repr_shows_the_layers():
    shown = repr(Glow(GlowConfig(5, coupling="affine", permutation="linear")))
    for name in ("Glow", "ActNorm", "InvertibleLinear", "AffineCoupling"):
        assert name in shown


@pytest.mark.parametrize(
    ("dim", "levels", "split", "expected"),
    [
        (768, 3, True, [768, 384, 192]),
        (24, 4, True, [24, 12, 6, 3]),
        (13, 4, True, [13, 7, 4, 2]),
        (5, 9, True, [5, 3, 2]),
        (2, 3, True, [2]),
        (5, 3, False, [5, 5, 5]),
    ],
)
def test_dimensions_of_the_levels(dim, levels, split, expected):
    config = GlowConfig(dim, levels, split=split)
    assert config.level_dims() == expected
    assert sum(Glow(config).leaving) == dim if split else Glow(config).leaving[-1] == dim


def test_latents_are_ordered_by_the_level_they_left():
    flow = randomised(GlowConfig(8, levels=3, depth=1, width=4))
    x, expected = normal(6, 8), []
    for level, leaving in zip(flow.levels, (4, 2, 2), strict=True):
        x = level[0](x)[0]
        x, done = x[:, :-leaving], x[:, -leaving:]
        expected.append(done)
    torch.testing.assert_close(flow(normal(6, 8))[0], torch.cat(expected, dim=1))


def test_objective_is_bits_per_dimension_of_the_density():
    flow, x = randomised(GlowConfig(5)), normal(7, 5)
    z, log_det = flow(x)
    log_prob = torch.distributions.Normal(0, 1).log_prob(z).sum(1) + log_det
    torch.testing.assert_close(flow.log_prob(x), log_prob)
    torch.testing.assert_close(flow.bits_per_dim(x), -log_prob.mean() / math.log(2) / 5)


def test_initialised_latents_are_standardised_before_the_last_coupling():
    flow = Glow(GlowConfig(13)).double()
    x = normal(500, 13) @ normal(13, 13, seed=3) + 4
    before = x.clone()
    flow.initialize(x)
    assert torch.equal(x, before)
    z = flow(x)[0].detach()
    torch.testing.assert_close(z.mean(0), torch.zeros(13, dtype=torch.float64), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.std(0, correction=0), torch.ones(13, dtype=torch.float64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@pytest.mark.parametrize("permutation", ["reverse", "random", "linear"])
def test_a_dimension_constant_in_the_first_rows_may_vary_later(coupling, permutation):
    x = normal(40, 8).float()
    x[:32, 3] = 1.0
    flow = Glow(GlowConfig(8, coupling=coupling, permutation=permutation))
    flow.initialize(x[:32])
    with torch.no_grad():
        z, log_det = flow(x)
        assert z.abs().max() < 1e3
        assert log_det.isfinite().all()
        torch.testing.assert_close(flow.inverse(z), x, rtol=0, atol=1e-3)


def test_samples_are_repeatable_and_leave_the_global_generator_alone():
    flow = randomised(GlowConfig(5))
    before = torch.get_rng_state()
    first, again, other = flow.sample(20), flow.sample(20), flow.sample(20, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (20, 5)
    assert first.dtype == torch.float64
    assert Glow(GlowConfig(5)).sample(3).dtype == torch.float32
    assert flow.sample(0).shape == (0, 5)


def test_temperature_keeps_samples_near_the_centre():
    flow = randomised(GlowConfig(5))
    with torch.no_grad():
        wide, narrow = (flow(flow.sample(50, temperature=t))[0] for t in (1.0, 0.1))
    torch.testing.assert_close(narrow, wide * 0.1)


def test_the_seed_draws_the_weights():
    before = torch.get_rng_state()
    one, same, other = (Glow(GlowConfig(6, permutation="random", seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    key = "levels.0.0.coupling.net.linear1.weight"
    assert torch.equal(one.state_dict()[key], same.state_dict()[key])
    assert not torch.equal(one.state_dict()[key], other.state_dict()[key])
    assert abs(float(one.state_dict()[key].std()) - 0.05) < 0.02


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 1}, "dim must be an integer of at least 2"),
        ({"dim": 4.0}, "dim must be an integer"),
        ({"dim": 4, "levels": 0}, "levels must be an integer of at least 1"),
        ({"dim": 4, "depth": 0}, "depth must be"),
        ({"dim": 4, "width": "wide"}, "width must be"),
        ({"dim": 4, "coupling": "spline"}, "Unknown coupling 'spline'; choose from additive, affine"),
        ({"dim": 4, "permutation": "none"}, "Unknown permutation 'none'; choose from reverse, random, linear"),
    ],
)
def test_impossible_shapes_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        GlowConfig(**settings)


def test_numpy_integers_are_integers():
    flow = Glow(GlowConfig(np.int64(6), levels=np.int32(2), depth=np.int64(1), width=np.int64(4)))
    assert flow.sample(2).shape == (2, 6)


@pytest.mark.parametrize("module", [name for _, name, _ in pkgutil.iter_modules(bertflow.flows.__path__)])
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(f"bertflow.flows.{module}")).failed == 0
