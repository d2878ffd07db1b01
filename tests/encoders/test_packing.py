import copy
import pickle

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from bertflow.encoders.packing import PackedLinear, PackedLinearGelu, pack_linear_layers

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def layers(bias=True):
    """A plain layer and the same one packed."""
    torch.manual_seed(0)
    plain = nn.Linear(24, 40, bias=bias)
    packed = nn.Sequential(copy.deepcopy(plain))
    pack_linear_layers(packed)
    return plain, packed[0]


@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (3, 5, 24), (0, 24)])
def test_the_same_outputs(shape, bias):
    plain, packed = layers(bias)
    x = torch.randn(*shape)
    torch.testing.assert_close(packed(x), plain(x), rtol=1e-6, atol=1e-6)


def test_new_weights_are_seen():
    plain, packed = layers()
    x = torch.randn(4, 24)
    for change in (
        lambda layer: layer.weight.data.mul_(2),
        lambda layer: layer.load_state_dict(nn.Linear(24, 40).state_dict()),
    ):
        for layer in (plain, packed):
            torch.manual_seed(1)
            with torch.no_grad():
                change(layer)
        with torch.inference_mode():
            torch.testing.assert_close(packed(x), plain(x), rtol=1e-6, atol=1e-6)


def test_in_training_and_in_other_precisions_it_is_the_plain_layer():
    plain, packed = layers()
    x = torch.randn(4, 24)
    with torch.inference_mode():
        packed(x)
    for layer in (plain, packed):
        layer(x).square().sum().backward()
    assert torch.equal(packed.weight.grad, plain.weight.grad)
    with torch.inference_mode():
        assert torch.equal(packed.double()(x.double()), plain.double()(x.double()))
        assert torch.equal(packed.bfloat16()(x.bfloat16()), plain.bfloat16()(x.bfloat16()))


def test_it_is_saved_copied_and_shown_as_the_plain_layer():
    plain, packed = layers()
    with torch.inference_mode():
        expected = packed(torch.ones(2, 24))
    assert repr(packed) == repr(plain)
    assert packed.state_dict().keys() == plain.state_dict().keys()
    for other in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):  # noqa: S301
        assert type(other) is PackedLinear
        assert "_packed" not in other.__dict__
        with torch.inference_mode():
            assert torch.equal(other(torch.ones(2, 24)), expected)


def test_large_models_keep_one_copy(monkeypatch):
    monkeypatch.setattr("bertflow.encoders.packing.MOST_WEIGHTS", 10)
    model = nn.Sequential(nn.Linear(4, 4))
    pack_linear_layers(model)
    assert type(model[0]) is nn.Linear


class Intermediate(nn.Module):
    """As in transformers' BERT."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.intermediate_act_fn = nn.Linear(24, 40), ACT2FN[act]

    def forward(self, x):
        return self.intermediate_act_fn(self.dense(x))


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_gelu_is_taken_in_and_nothing_else(act):
    plain, packed = Intermediate(act), Intermediate(act)
    pack_linear_layers(packed)
    assert type(packed.dense) is (PackedLinearGelu if act == "gelu" else PackedLinear)
    x = torch.randn(7, 24)
    with torch.inference_mode():
        torch.testing.assert_close(packed(x), plain(x), rtol=1e-6, atol=1e-6)
    for layer in (plain, packed):
        layer(x).square().sum().backward()
    torch.testing.assert_close(packed.dense.weight.grad, plain.dense.weight.grad)
    assert packed.state_dict().keys() == plain.state_dict().keys()
