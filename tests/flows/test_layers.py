import copy

import pytest
import torch

from bertflow.errors import InputError
from bertflow.flows import (
    ActNorm,
    AdditiveCoupling,
    AffineCoupling,
    Bijection,
    GlowConfig,
    InvertibleLinear,
    Permutation,
)
from bertflow.flows.glow import Step


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


LAYERS = {
    "actnorm": lambda dim, seed: ActNorm(dim),
    "reverse": lambda dim, seed: Permutation(dim),
    "random": lambda dim, seed: Permutation(dim, seed),
    "linear": lambda dim, seed: InvertibleLinear(dim, seed),
    "additive": lambda dim, seed: AdditiveCoupling(dim, 7, generator(seed)),
    "affine": lambda dim, seed: AffineCoupling(dim, 7, generator(seed)),
    "step": lambda dim, seed: Step(dim, GlowConfig(dim, permutation="linear", coupling="affine"), generator(seed)),
}
every = pytest.mark.parametrize("name", LAYERS)
dims = pytest.mark.parametrize("dim", [2, 3, 5, 8, 13, 24])


def rows(n, dim, seed=1):
    return torch.randn(n, dim, generator=generator(seed), dtype=torch.float64)


def randomised(layer, seed=2):
    """Shake every parameter, since couplings start as the identity."""
    draw = generator(seed)
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return layer


def build(name, dim, seed=0):
    return randomised(LAYERS[name](dim, seed))


@dims
@every
def test_inverse_undoes_forward(name, dim):
    layer, x = build(name, dim), rows(11, dim)
    torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=0, atol=1e-9)
    torch.testing.assert_close(layer(layer.inverse(x))[0], x, rtol=0, atol=1e-9)


@dims
@every
def test_log_det_is_that_of_the_jacobian(name, dim):
    layer, x = build(name, dim), rows(3, dim)
    log_det = layer(x)[1].expand(3)
    jacobians = torch.autograd.functional.jacobian(lambda x: layer(x)[0].sum(0), x, vectorize=True).transpose(0, 1)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(jacobians).logabsdet, rtol=0, atol=1e-9)


@dims
@every
def test_gradients_reach_every_parameter(name, dim):
    layer = build(name, dim)
    z, log_det = layer(rows(32, dim))
    if any(True for _ in layer.parameters()):
        (z.square().sum() / 2 - log_det.expand(32).sum()).backward()
    for key, parameter in layer.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@dims
@every
def test_state_dict_carries_the_whole_map(name, dim):
    layer, other, x = build(name, dim), LAYERS[name](dim, 99).double(), rows(5, dim)
    other.load_state_dict(layer.state_dict())
    for mine, theirs in zip(layer(x), other(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    torch.testing.assert_close(layer.inverse(x), other.inverse(x), rtol=0, atol=0)


@every
def test_rows_do_not_see_each_other_and_forward_changes_no_state(name):
    layer, x = build(name, 5), rows(9, 5)
    before = copy.deepcopy(layer.state_dict())
    z, log_det = layer(x)
    torch.testing.assert_close(layer(x[4:5])[0], z[4:5])
    torch.testing.assert_close(layer(x[4:5])[1].expand(1), log_det.expand(9)[4:5])
    layer.inverse(z)
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())


@every
def test_initialize_turns_the_rows_into_the_layers_output(name, monkeypatch):
    monkeypatch.setattr("bertflow.flows.layers.FEW", 65)  # 13 rows at a time
    layer, x = build(name, 5), rows(50, 5) * 3 + 1
    z = x.clone()
    assert layer.initialize_(z) is z
    assert not z.requires_grad
    torch.testing.assert_close(z, layer(x)[0].detach())


@every
def test_repr_names_the_class(name):
    layer = build(name, 3)
    assert repr(layer).startswith(type(layer).__name__)


@every
def test_no_rows_pass(name):
    z, log_det = build(name, 3)(rows(0, 3))
    assert z.shape == (0, 3)
    assert log_det.expand(0).shape == (0,)


def test_the_base_class_asks_for_both_directions():
    with pytest.raises(NotImplementedError):
        Bijection()(rows(2, 2))
    with pytest.raises(NotImplementedError):
        Bijection().inverse(rows(2, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-28, 1e-10, 1.0, 1e10, 1e30])
def test_actnorm_standardises_at_every_scale(scale, dtype):
    x = ((rows(200, 6) + 5 * torch.arange(6)) * torch.logspace(0, 2, 6) * scale).to(dtype)
    layer = ActNorm(6).to(dtype)
    z = layer.initialize_(x).double()
    torch.testing.assert_close(z.mean(0), torch.zeros(6, dtype=torch.float64), rtol=0, atol=2e-5)
    torch.testing.assert_close(z.std(0, correction=0), torch.ones(6, dtype=torch.float64), rtol=0, atol=2e-4)


AWKWARD = {
    "constant": torch.full((9, 4), 7.0),
    "zeros": torch.zeros(9, 4),
    "huge constant": torch.full((9, 4), 1e30),
    "one row": torch.ones(1, 4),
    "two rows": torch.eye(4)[:2],
    "one dimension varies": torch.eye(4)[:, :1] * torch.tensor([[1.0, 0, 0, 0]]),
    "scales apart": rows(9, 4).float() * torch.tensor([1e-30, 1e-10, 1e10, 1e30]),
    "subnormal": rows(9, 4).float() * 1e-40,
    "last bit": torch.full((9, 4), 7.0).index_fill(0, torch.tensor([3]), 7.0000005),
}


@pytest.mark.parametrize("case", AWKWARD)
@every
def test_initialize_never_gives_nan(name, case):
    x = AWKWARD[case]
    layer = LAYERS[name](4, 0)
    z = layer.initialize_(x.clone())
    assert all(value.isfinite().all() for value in layer.state_dict().values())
    assert z.isfinite().all()
    assert layer(x)[1].isfinite().all()
    assert layer.inverse(z).isfinite().all()


def test_constant_dimensions_are_scaled_like_the_others():
    x = rows(100, 4) * 10
    x[:, 2] = 3.0
    layer = ActNorm(4).double()
    z = layer.initialize_(x)
    assert 0.5 < torch.exp(3 * layer.logscale[2]) / torch.exp(3 * layer.logscale[0]) < 2
    assert z[:, 2].abs().max() == 0


@pytest.mark.parametrize("x", [torch.empty(0, 4), torch.tensor([[0.0, 1.0, 2.0, float("nan")]]), torch.eye(4) / 0.0])
def test_actnorm_refuses_to_start_from_nothing_or_nan(x):
    layer = ActNorm(4)
    with pytest.raises(InputError, match="finite rows"):
        layer.initialize_(x)
    assert not layer.loc.any()


@dims
def test_the_seed_of_a_permutation_draws_its_order(dim):
    x = torch.arange(float(dim))[None]
    assert Permutation(dim)(x)[0][0].tolist() == list(reversed(range(dim)))
    drawn = Permutation(dim, 3)(x)[0]
    assert sorted(drawn[0].tolist()) == list(range(dim))
    assert torch.equal(drawn, Permutation(dim, 3)(x)[0])


@dims
def test_the_linear_map_starts_as_a_rotation(dim):
    layer, x = InvertibleLinear(dim, 5).double(), rows(7, dim)
    z, log_det = layer(x)
    torch.testing.assert_close(z.norm(dim=1), x.norm(dim=1), rtol=1e-5, atol=0)
    torch.testing.assert_close(log_det, torch.zeros(7, dtype=torch.float64), rtol=0, atol=1e-5)


@dims
@pytest.mark.parametrize("kind", [AdditiveCoupling, AffineCoupling])
def test_couplings_start_as_the_identity_and_keep_the_first_part(kind, dim):
    layer, x = kind(dim).double(), rows(7, dim)
    assert torch.equal(layer.initialize_(x.clone()), x)
    z = randomised(layer)(x)[0]
    assert torch.equal(z[:, : dim // 2], x[:, : dim // 2])
    assert (z[:, dim // 2 :] != x[:, dim // 2 :]).any()


def test_an_affine_coupling_at_most_doubles_or_halves():
    layer = randomised(AffineCoupling(6))
    with torch.no_grad():
        layer.net.linear3.weight.mul_(1e6)
    x = rows(100, 6)
    log_det = layer(x)[1]
    assert log_det.abs().max() <= 3 * 0.6931471805599454
    assert log_det.abs().max() > 1
