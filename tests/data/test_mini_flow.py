"""The flow that ships inside: there without a fit or a network, and never with an encoder that it was not fitted on."""

import json
import shutil

import numpy as np
import pytest

from bertflow import BertFlow, Calibrator, Encoder, data
from bertflow.errors import ModelFolderError
from bertflow.storage import model_folder

TEXTS = ["A man is eating.", "Someone has lunch.", "The stock market fell.", "It rains in the mountains."]


@pytest.fixture(scope="module")
def ready():
    return BertFlow.from_pretrained("mini-flow", device="cpu")


def test_it_works_without_a_fit(ready):
    vectors = ready.encode(TEXTS)
    assert vectors.shape == (4, ready.encoder.dim)
    assert np.isfinite(vectors).all()
    assert ready.encoder.name == "mini"
    assert ready.training["sentences"] >= 1000


def test_its_latents_of_other_general_text_are_closer_to_a_gaussian_than_the_raw_vectors(ready):
    texts = [text for text in data.sample_sentences() if len(text) <= 40][:300]
    raw, latents = ready.encoder.encode(texts), ready.encode(texts)

    def mean_cosine(x):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        return float((unit @ unit.T)[~np.eye(len(x), dtype=bool)].mean())

    assert abs(mean_cosine(latents)) < mean_cosine(raw)
    assert 0.5 < latents.std() < 2


def test_it_was_fitted_on_the_mini_that_ships(ready):
    """Whoever replaces mini runs results/fit_mini_flow.py again."""
    config, _ = model_folder.load(data.shipped_model("mini-flow"))
    assert config["encoder"]["fingerprint"] == ready.encoder.fingerprint
    assert not config["bundled_encoder"]


def test_it_is_small_and_has_no_path_of_the_machine_that_made_it():
    folder = data.shipped_model("mini-flow")
    files = list(folder.iterdir())
    assert {file.name for file in files} == {"config.json", "model.safetensors", "README.md"}
    assert sum(file.stat().st_size for file in files) < 2_000_000
    for name in ("config.json", "README.md"):
        assert str(data.shipped_model("mini-flow").parent) not in (data.shipped_model("mini-flow") / name).read_text(
            encoding="utf-8"
        )


def test_another_mini_is_refused_with_a_sentence(tmp_path, monkeypatch):
    folder = shutil.copytree(data.shipped_model("mini-flow"), tmp_path / "flow")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["encoder"]["fingerprint"] = "0" * 32
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr("bertflow.storage.model_folder.shipped_model", lambda name: folder)
    with pytest.raises(ModelFolderError, match=r"fitted on the encoder 'mini-1'; 'mini' has other weights or settings"):
        BertFlow.from_pretrained("mini-flow", device="cpu")


def test_an_encoder_of_ones_own_is_refused_as_always(tiny):
    with pytest.raises(ValueError, match="do not belong together"):
        BertFlow.from_pretrained("mini-flow", encoder=tiny("bert"), device="cpu")
    other = Encoder("mini", "mean", device="cpu")
    with pytest.raises(ModelFolderError, match="other weights or settings"):
        BertFlow.from_pretrained("mini-flow", encoder=other, device="cpu")
    with pytest.warns(UserWarning, match="other weights or settings"):
        BertFlow.from_pretrained("mini-flow", encoder=other, device="cpu", accept_changed_encoder=True)


def test_a_folder_of_that_name_comes_first(small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_model.save_pretrained("mini-flow")
    assert BertFlow.from_pretrained("mini-flow", device="cpu").dim == small_model.dim


def test_its_calibrator_alone():
    assert Calibrator.from_pretrained("mini-flow", device="cpu").n_features_in_ == 256


def test_it_adapts_to_ones_own_text_and_is_saved_as_any_model(ready, tmp_path):
    texts = data.sample_sentences()
    adapted = BertFlow(ready.encoder, Calibrator.from_pretrained("mini-flow", device="cpu"), ready.training)
    adapted.partial_fit(texts[:200])
    unseen = texts[200:500]
    assert adapted.score_samples(unseen).mean() > ready.score_samples(unseen).mean()
    assert adapted.training["sentences"] == 200
    assert adapted.training["earlier_sentences"] == ready.training["sentences"]
    again = BertFlow.from_pretrained(adapted.save_pretrained(tmp_path / "model"), device="cpu")
    assert np.allclose(again.encode(TEXTS), adapted.encode(TEXTS), atol=1e-5)
