"""A pooling, a calibrator, a view and recipes that this file alone brings go through the same contract tests as ours."""

import numpy as np
import pytest
import torch
import typer.testing

import bertflow
from bertflow import (
    POOLINGS,
    BertFlow,
    Calibrator,
    Encoder,
    InputError,
    Part,
    Pooling,
    View,
    register_pooling,
    register_recipe,
)
from bertflow.recipes import TABLE, check_recipe
from tests import test_every_recipe as contract
from tests.test_every_recipe import encoder, fitted, task  # noqa: F401 (its fixtures)


class Doubled(Calibrator):
    """The simplest calibrator: centred, and K times as long."""

    def __init__(self, times: int = 2) -> None:
        self.times = times

    def fit(self, X, y=None):
        x = self._check_fit(X)
        self.mean_, self._n_features_out = x.mean(axis=0), x.shape[1]
        return self

    def _transform(self, x):
        return self.times * (x - self.mean_)

    def _inverse(self, z):
        return z / self.times + self.mean_

    def _arrays(self):
        return {"mean": self.mean_}

    def _restore(self, arrays):
        self.mean_ = arrays["mean"]


class AffineDoubled(Doubled):
    """The same, which says that it is affine: two methods more, and every export takes it."""

    def as_affine(self):
        kernel = self.times * np.eye(len(self.mean_))
        return kernel, -self.mean_ @ kernel

    def as_module(self):
        from bertflow.calibrators.modules import AffineMap

        return AffineMap.of(self.mean_, self.times * np.eye(len(self.mean_)))


class Lengths(View):
    """A view that needs no transformer: how long a text is and how many words it has."""

    needs_encoder = False

    def _bind(self, encoder, show_progress_bar):  # noqa: F811
        self.dim = 2

    def encode(self, texts, *, show_progress_bar=False):
        return np.array([[len(text), len(text.split())] for text in texts], dtype=np.float32)


def smallest(states, mask):
    """The minimum over tokens."""
    return states.masked_fill(~mask.unsqueeze(-1).bool(), float("inf")).amin(1)


NAMES = ["own-3", "own-affine", "own-affine@smallest", "own-beside", "own-lengths"]


@pytest.fixture(scope="module", autouse=True)
def registered():
    """Register them, and leave nothing behind."""
    register_pooling(Pooling("smallest", (0, -1), smallest))
    register_recipe("own-K", "centred and K times as long")(lambda view, k: [Part(view, Doubled(k))])
    register_recipe("own-affine", "the same, affine")(lambda view, k: [Part(view, AffineDoubled())])
    register_recipe("own-lengths", "lengths alone", brings_views=True)(
        lambda view, k: [Part(Lengths(), AffineDoubled())]
    )

    @register_recipe("own-beside", "the smallest beside ours", brings_views=True)
    def _(view, k):
        return [Part(bertflow.Pooled("smallest"), AffineDoubled()), Part(bertflow.TokenTable(), bertflow.Whitening(4))]

    yield
    for pattern in ("own-K", "own-affine", "own-lengths", "own-beside"):
        TABLE.pop(pattern)
    POOLINGS.pop("smallest")
    for name in ("Doubled", "AffineDoubled"):
        Calibrator.registry.pop(name)
    View.registry.pop("Lengths")


every = pytest.mark.parametrize("name", NAMES)


@every
def test_the_model_itself(fitted, encoder, sentences, tmp_path, name):  # noqa: F811
    contract.test_vectors(fitted, name)
    contract.test_saved_loaded_and_fitted_again_it_is_the_same(fitted, encoder, sentences, tmp_path, name)
    contract.test_a_density_is_a_flow_s_alone(fitted, name)


@every
def test_what_takes_a_fitted_model(fitted, sentences, tmp_path, monkeypatch, name):  # noqa: F811
    affine = name in ("own-affine", "own-affine@smallest", "own-lengths")
    monkeypatch.setattr(contract, "AFFINE", {name} if affine else set())
    contract.test_push(fitted, tmp_path, monkeypatch, name)
    if name != "own-lengths":  # in which no text is nearest to itself alone
        contract.test_search_index(fitted, sentences, tmp_path, name)
    (tmp_path / "ray").mkdir()
    contract.test_what_ray_sends_to_its_workers(fitted, tmp_path / "ray", name)


@every
def test_exports(fitted, monkeypatch, name):  # noqa: F811
    refused = name in ("own-3", "own-lengths")  # not affine; a view without a torch form
    monkeypatch.setattr(contract, "WITHOUT_TORCH_FORM", {name} if refused else set())
    monkeypatch.setattr(
        contract, "AFFINE", {name} if name == "own-affine" else set()
    )  # the others need a module of ours
    contract.test_sentence_transformers(fitted, name)
    contract.test_onnx(fitted, name)


def test_judges(encoder, sentences, task, fitted, tmp_path, monkeypatch, tiny_bert):  # noqa: F811
    monkeypatch.setattr(contract, "EVERY", NAMES)
    scores = {name: contract.evaluate_task(task, fitted(name).encode, "all", resamples=0).value for name in NAMES}
    contract.test_compare(encoder, sentences, task, scores)
    contract.test_mteb(encoder, sentences, task, scores, tmp_path, monkeypatch)
    for name in NAMES:
        contract.test_scikit_learn(fitted, tiny_bert, sentences, name)
        contract.test_analyze_and_outliers(fitted, sentences, name)


def test_the_table_tells_of_them():
    assert bertflow.recipes()["own-K"] == "centred and K times as long"
    with pytest.raises(InputError, match="did you mean 'own-affine'"):
        check_recipe("own-afine")
    from bertflow.cli.app import app

    assert "own-beside" in typer.testing.CliRunner().invoke(app, ["recipes", "--json"]).stdout


def test_the_pooling_is_one_of_ours(encoder, sentences):  # noqa: F811
    model = BertFlow.fit(sentences, encoder, recipe="raw@smallest")
    texts = sentences[:5]
    batch = encoder.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = encoder.model(**batch, output_hidden_states=True).hidden_states
    expected = smallest((states[0] + states[-1]) / 2, batch["attention_mask"])
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-5)
    np.testing.assert_array_equal(Encoder(encoder.name, "smallest", device="cpu").encode(texts), model.encode(texts))
