"""Shards of several views: fitted and transformed they are what a model in memory is, stopped or not."""

import warnings

import numpy as np
import pytest

from bertflow import BertFlow, Encoder, InputError, Pooled, fit_shards, transform_shards, write_shards
from bertflow.recipes import DEFAULT_OF_ONE_VIEW, TABLE, Recipe
from bertflow.storage.shards import Shards, ShardsError

TEXTS = ["the cat sat on the mat", "a dog runs fast", "", "tea"]


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


@pytest.fixture
def recipe(request, two_parts):
    return request.param


every = pytest.mark.parametrize("recipe", ["two", "static-4", "whitening@cls", "sn"], indirect=True)


def write(sentences, source, folder, **options):
    write_shards(sentences, source, folder, **{"shard_rows": 90, "dtype": "float32"} | options)
    return Shards(folder)


@every
def test_a_fit_on_shards_is_the_fit_in_memory(sentences, encoder, tmp_path, recipe):
    """Texts are all different here; repeated ones count as often as they come in shards, and once in memory."""
    shards = write(sentences, encoder, tmp_path / "raw", recipe=recipe)
    model, exact = fit_shards(shards, recipe), BertFlow.fit(sentences, encoder, recipe=recipe)
    assert (model.recipe, model.dim) == (recipe, exact.dim)
    assert shards.dim == sum(part.view.dim for part in exact.parts)
    for part, other in zip(model.parts, exact.parts, strict=True):
        assert part.view.fingerprint == other.view.fingerprint
        assert part.scale == pytest.approx(other.scale, rel=1e-4)
    np.testing.assert_allclose(model.encode(TEXTS), exact.encode(TEXTS), rtol=1e-3, atol=1e-3)


@every
def test_transformed_shards_are_the_vectors_of_the_model(sentences, encoder, tmp_path, recipe):
    model = BertFlow.fit(sentences, encoder, recipe=recipe)
    raw = write(sentences, model, tmp_path / "raw", raw=True)
    transform_shards(raw, model, tmp_path / "calibrated")
    calibrated = Shards(tmp_path / "calibrated")
    assert (calibrated.dim, calibrated.manifest.recipe) == (model.dim, recipe)
    np.testing.assert_allclose(calibrated.rows(0, len(raw)), model.encode(sentences), atol=1e-4)
    direct = write(sentences, model, tmp_path / "direct")
    np.testing.assert_allclose(direct.rows(0, len(raw)), calibrated.rows(0, len(raw)), atol=1e-4)


@every
def test_a_model_of_shards_is_saved_and_loaded_without_its_encoder(sentences, encoder, tmp_path, recipe):
    shards = write(sentences, encoder, tmp_path / "raw", recipe=recipe)
    model = fit_shards(shards, recipe)
    folder = model.save_pretrained(tmp_path / "model")
    later = BertFlow.from_pretrained(folder, defer_encoder=True)
    transform_shards(shards, later, tmp_path / "calibrated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = BertFlow.from_pretrained(folder, device="cpu")
    rows = Shards(tmp_path / "calibrated").rows(0, len(shards))
    np.testing.assert_allclose(rows, loaded.encode(sentences), atol=1e-4)
    assert later.fingerprint == loaded.fingerprint == model.fingerprint


def test_a_stopped_run_goes_on_where_it_was_with_the_views_it_had(sentences, encoder, tmp_path, two_parts, monkeypatch):
    whole = write(sentences, encoder, tmp_path / "whole", recipe=two_parts)
    real, calls = Encoder.encode_views, []

    def stopped(self, texts, *given, **options):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, texts, *given, **options)

    monkeypatch.setattr(Encoder, "encode_views", stopped)
    with pytest.raises(KeyboardInterrupt):
        write(sentences, encoder, tmp_path / "v", recipe=two_parts)
    with pytest.raises(ShardsError, match="of 5 shards 3 are missing"):
        Shards(tmp_path / "v")
    again = write(sentences, encoder, tmp_path / "v", recipe=two_parts)
    assert calls == [90, 90, 90, 90, 90, 40]
    for file in (tmp_path / "whole").rglob("*"):
        assert (
            file.is_dir() or file.read_bytes() == (tmp_path / "v" / file.relative_to(tmp_path / "whole")).read_bytes()
        )
    np.testing.assert_array_equal(again.rows(0, 400), whole.rows(0, 400))


def test_columns_are_those_of_each_view(sentences, encoder, tmp_path, two_parts):
    shards = write(sentences, encoder, tmp_path / "raw", recipe=two_parts)
    model = BertFlow.fit(sentences, encoder, recipe=two_parts)
    start = 0
    for part in model.parts:
        columns = shards.columns(start, start + part.view.dim)
        assert columns.dim == part.view.dim
        np.testing.assert_allclose(columns.rows(0, 400), part.view.encode(sentences), atol=1e-5)
        start += part.view.dim
    assert start == shards.dim


def test_the_recipe_of_the_shards_is_the_default(sentences, encoder, tmp_path, two_parts):
    assert fit_shards(write(sentences, encoder, tmp_path / "two", recipe=two_parts)).recipe == two_parts
    assert fit_shards(write(sentences, encoder, tmp_path / "own")).recipe == DEFAULT_OF_ONE_VIEW


def test_a_recipe_with_other_views_is_refused(sentences, encoder, tmp_path, two_parts):
    own = write(sentences[:50], encoder, tmp_path / "own")
    for wrong in ("static", two_parts, "whitening@cls"):
        with pytest.raises(InputError, match=rf"holds the views Pooled.*bertflow embed --raw --recipe {wrong}"):
            fit_shards(own, wrong)
    both = write(sentences[:50], encoder, tmp_path / "both", recipe=two_parts)
    with pytest.raises(InputError, match=r"holds the views TokenTable.* and whitening needs Pooled"):
        fit_shards(both, "whitening")
    assert fit_shards(own, f"whitening@{encoder.pooling}").dim == 16  # said, and so it is


def test_a_folder_of_other_views_is_not_gone_on_with(sentences, encoder, tmp_path, two_parts):
    write(sentences[:50], encoder, tmp_path / "v", recipe=two_parts)
    for other in ("static", "whitening", None):
        with pytest.raises(InputError, match="was begun with"):
            write(sentences[:50], encoder, tmp_path / "v", recipe=other)
    with pytest.raises(InputError, match="was begun with the text"):
        write(sentences[:49], encoder, tmp_path / "v", recipe=two_parts)


def test_a_fitted_flow_beside_a_whitening(sentences, encoder, tmp_path, monkeypatch):
    from bertflow import FlowCalibrator, Part, Whitening

    def make(view, k):
        flow = FlowCalibrator(levels=1, depth=1, epochs=1)
        return [Part(Pooled("cls"), Whitening(3)), Part(Pooled("mean", words_only=True), flow, weight=2.0)]

    monkeypatch.setitem(TABLE, "mixed", Recipe("mixed", "for tests", make, brings_views=True))
    shards = write(sentences, encoder, tmp_path / "raw", recipe="mixed")
    model, exact = fit_shards(shards, "mixed"), BertFlow.fit(sentences, encoder, recipe="mixed")
    np.testing.assert_allclose(model.encode(TEXTS), exact.encode(TEXTS), rtol=1e-3, atol=1e-3)
    assert model.training["fitted_vectors"] == 400
    assert "bits_per_dim" in model.training
    vectors = model.encode(sentences)
    squares = [np.square(part).sum(1).mean() for part in (vectors[:, :3], vectors[:, 3:])]
    np.testing.assert_allclose(squares, [1, 2], rtol=1e-3)
