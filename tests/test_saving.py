"""Models on disk and on the hub: what was saved comes back exactly, and what cannot is told in a sentence."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import yaml
from huggingface_hub import ModelCard

from bertflow import (
    BertFlow,
    Calibrator,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    ModelFolderError,
    RemoveTopComponents,
    Standardize,
    Whitening,
)
from bertflow.evaluation import Score
from bertflow.storage import model_folder
from bertflow.storage.checksums import sealed

TEXTS = ["the cat sat on the mat", "a dog runs", "tea", "the red house and then tea"]


@pytest.fixture(scope="module")
def encoder(small_model):
    return small_model.encoder


@pytest.fixture
def saved(small_model, tmp_path):
    return small_model.save_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    "calibrator",
    [
        FlowCalibrator(epochs=1, coupling="affine", permutation="linear", random_state=0),
        FlowCalibrator(epochs=1, levels=2, permutation="random", random_state=np.random.RandomState(0)),
        Whitening(n_components=5),
        Whitening(method="zca"),
        RemoveTopComponents(k=2),
        Standardize(),
        Identity(),
    ],
    ids=["flow, affine", "flow, random", "whitening, 5", "zca", "top components", "standardize", "identity"],
)
def test_every_calibrator_comes_back_exactly(encoder, sentences, tmp_path, calibrator):
    model = BertFlow.fit(sentences, encoder, calibrator=calibrator)
    again = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.dim == model.dim
    assert again.encoder.name == model.encoder.name
    assert again.training == model.training
    latents = model.encode(TEXTS)
    np.testing.assert_array_equal(
        again.calibrator.inverse_transform(latents), model.calibrator.inverse_transform(latents)
    )


def test_density_and_a_second_generation_come_back_exactly(small_model, saved, tmp_path):
    again = BertFlow.from_pretrained(saved, device="cpu")
    np.testing.assert_array_equal(again.score_samples(TEXTS), small_model.score_samples(TEXTS))
    third = BertFlow.from_pretrained(str(again.save_pretrained(tmp_path / "again")), device="cpu")
    np.testing.assert_array_equal(third.encode(TEXTS), small_model.encode(TEXTS))
    first, second = (model_folder.load_config(path) for path in (saved, tmp_path / "again"))
    assert first == second


def test_the_mini_encoder_is_found_wherever_the_model_goes(mini, sentences, tmp_path, monkeypatch):
    model = BertFlow.fit(sentences[:80], mini, calibrator=Standardize())
    model.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    again = BertFlow.from_pretrained("model", device="cpu")
    assert again.encoder.name == "mini"
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_the_folder_is_readable_by_others_and_holds_no_pickle(small_model, tmp_path):
    folder = small_model.save_pretrained(tmp_path / "model", bundle_encoder=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["parts"][0]["calibrator"]["class"] == "FlowCalibrator"
    assert config["encoder"]["pooling"] == "first-last-avg"
    assert config["training"]["sentences"] == 400
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert yaml.safe_load(card.split("---\n")[1])["library_name"] == "bertflow"
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} <= {".json", ".md", ".safetensors", ".txt"}
    assert not [file for file in files if file.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"PK")]


def test_saving_replaces_our_own_model_only(small_model, saved, tmp_path, tiny_bert):
    small_model.save_pretrained(saved)
    BertFlow.from_pretrained(saved, device="cpu")
    foreign = shutil.copytree(tiny_bert, tmp_path / "bert")
    with pytest.raises(ModelFolderError, match="is not a bertflow model; nothing was written"):
        small_model.save_pretrained(foreign)
    Encoder(foreign, device="cpu")


# --- encoders of saved models


@pytest.fixture
def movable(tiny_bert, tmp_path, sentences):
    """A model on a copy of the tiny BERT that may be taken away."""
    place = shutil.copytree(tiny_bert, tmp_path / "encoder")
    return BertFlow.fit(sentences[:60], place, calibrator=Standardize(), device="cpu")


def test_a_bundled_encoder_loads_when_the_original_is_gone(movable, tmp_path):
    expected = movable.encode(TEXTS)
    folder = movable.save_pretrained(tmp_path / "model", bundle_encoder=True)
    shutil.rmtree(tmp_path / "encoder")
    folder = folder.rename(tmp_path / "moved")
    again = BertFlow.from_pretrained(folder, device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), expected)
    assert again.encoder.name == movable.encoder.name


@pytest.mark.parametrize("kind", ["t5", "gpt2", "roberta"])
def test_other_families_can_be_bundled(tiny, sentences, tmp_path, kind):
    model = BertFlow.fit([text[:25] for text in sentences[:60]], tiny(kind), calibrator=Standardize(), device="cpu")
    again = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "model", bundle_encoder=True), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_encoder_that_is_gone_is_named(movable, tmp_path):
    folder = movable.save_pretrained(tmp_path / "model")
    shutil.rmtree(tmp_path / "encoder")
    with pytest.raises(
        ModelFolderError, match=r"encoder '.*encoder' cannot be loaded: .*encoder=…, or .*bundle_encoder"
    ):
        BertFlow.from_pretrained(folder)


def test_damaged_bundled_encoder(movable, tmp_path):
    folder = movable.save_pretrained(tmp_path / "model", bundle_encoder=True)
    weights = folder / "encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:3000])
    with pytest.raises(ModelFolderError, match=r"encoder.model\.safetensors is damaged"):
        BertFlow.from_pretrained(folder)


def test_another_encoder_is_refused_unless_it_is_accepted(saved, tiny_bert, small_model):
    other = Encoder(tiny_bert, "mean", device="cpu")
    sentence = r"was fitted on the encoder '.*bert'; '.*bert' has other weights or settings"
    with pytest.raises(ModelFolderError, match=rf"{sentence}.*accept_changed_encoder=True.*--accept-changed-encoder"):
        BertFlow.from_pretrained(saved, encoder=other)
    with pytest.warns(UserWarning, match=sentence) as caught:
        model = BertFlow.from_pretrained(saved, encoder=other, accept_changed_encoder=True)
    assert caught[0].filename == __file__
    assert model.encoder.pooling == "mean"
    same = BertFlow.from_pretrained(saved, encoder=Encoder(tiny_bert, device="cpu"))  # and no warning
    np.testing.assert_array_equal(same.encode(TEXTS), small_model.encode(TEXTS))


def test_an_encoder_that_changed_in_place_is_noticed(movable, tmp_path, tiny):
    folder = movable.save_pretrained(tmp_path / "model")
    shutil.rmtree(tmp_path / "encoder")
    shutil.copytree(tiny("distilbert"), tmp_path / "encoder")
    with pytest.raises(ModelFolderError, match="has other weights or settings"):
        BertFlow.from_pretrained(folder)
    with pytest.warns(UserWarning, match="has other weights or settings"):
        BertFlow.from_pretrained(folder, accept_changed_encoder=True)


def test_encoder_of_another_dimension(saved, mini):
    with pytest.raises(InputError, match=r"fitted on 16 dimensions, but the encoder 'mini' gives 256"):
        BertFlow.from_pretrained(saved, encoder=mini)


class Lengths:
    """The least that an encoder can be."""

    name, dim, fingerprint = "lengths", 2, "1"

    def encode(self, sentences, *, show_progress_bar=False):
        return np.array([[len(text), text.count(" ")] for text in sentences], dtype=np.float32)

    def describe(self):
        return {"name": self.name, "fingerprint": self.fingerprint}


def test_own_encoders_work_and_are_given_again_when_loading(sentences, tmp_path):
    model = BertFlow.fit(sentences, Lengths(), calibrator=Standardize())
    folder = model.save_pretrained(tmp_path / "model")
    again = BertFlow.from_pretrained(folder, encoder=Lengths())
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ModelFolderError, match=r"encoder 'lengths' is one of your own: give it with encoder="):
        BertFlow.from_pretrained(folder)
    with pytest.raises(InputError, match=r"Lengths has no save\(folder\)"):
        model.save_pretrained(folder, bundle_encoder=True)


def test_sentence_transformer_round_trip(tiny_bert, sentences, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    place = shutil.copytree(tiny_bert, tmp_path / "sbert")
    theirs = library.SentenceTransformer(str(place), device="cpu")
    model = BertFlow.fit(sentences[:60], theirs, calibrator=Standardize())
    expected = model.calibrator.transform(theirs.encode(TEXTS))
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    for bundle in (False, True):
        folder = model.save_pretrained(tmp_path / "model", bundle_encoder=bundle)
        again = BertFlow.from_pretrained(folder, device="cpu", local_files_only=True)
        np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)
    shutil.rmtree(place)
    BertFlow.from_pretrained(folder, device="cpu", local_files_only=True)
    folder = model.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="sbert' cannot be loaded"):
        BertFlow.from_pretrained(folder, device="cpu", local_files_only=True)


# --- damaged folders


def rewrite(folder: Path, change: Callable[[dict, dict], object]) -> None:
    """Apply ``change(config, arrays)`` to a saved model, checksum included."""
    config, arrays = model_folder.load(folder)
    change(config, arrays)
    weights = safetensors.numpy.save(arrays)
    config["sha256"]["model.safetensors"] = hashlib.sha256(weights).hexdigest()
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(json.dumps(sealed(config, model_folder.FREE)), encoding="utf-8")


LOC = "levels.0.0.actnorm.loc"


def part(config):
    return config["parts"][0]


DAMAGE = {
    "missing array": (lambda _c, a: a.pop(f"0.{LOC}"), f"'{LOC}' is missing"),
    "extra array": (lambda _c, a: a.update({"0.ghost": np.ones(3)}), "'ghost' is not expected"),
    "array of no part": (lambda _c, a: a.update({"1.ghost": np.ones(3)}), "'1.ghost' is of none of its parts"),
    "misshapen array": (
        lambda _c, a: a.update({f"0.{LOC}": np.ones(5, np.float32)}),
        rf"'{LOC}' has shape \(5,\); \(16,\) was expected",
    ),
    "unknown calibrator": (
        lambda c, _a: part(c)["calibrator"].update({"class": "Magic"}),
        "Unknown calibrator 'Magic'",
    ),
    "unknown view": (lambda c, _a: part(c)["view"].update({"class": "Magic"}), "Unknown view 'Magic'"),
    "unknown setting": (lambda c, _a: part(c)["calibrator"]["params"].update(magic=1), "magic"),
    "unknown setting of the view": (lambda c, _a: part(c)["view"]["params"].update(magic=1), "magic"),
    "wrong setting": (lambda c, _a: part(c)["calibrator"]["params"].update(levels="many"), "levels|'str'|many"),
    "other dimension": (lambda c, _a: part(c)["calibrator"].update(n_features_in=8), "shape|missing|expected"),
    "no dimension": (lambda c, _a: part(c)["calibrator"].pop("n_features_in"), "n_features_in"),
    "no settings": (lambda c, _a: part(c)["calibrator"].pop("params"), "params"),
    "no calibrator": (lambda c, _a: part(c).pop("calibrator"), "'calibrator' is missing"),
    "no view": (lambda c, _a: part(c).pop("view"), "'view' is missing"),
    "no weight": (lambda c, _a: part(c).pop("weight"), "'weight' is missing"),
    "a weight of nothing": (lambda c, _a: part(c).update(weight=0), "weight is a positive number"),
    "no parts": (lambda c, _a: c.pop("parts"), "'parts' is missing"),
    "no encoder": (lambda c, _a: c.pop("encoder"), "'encoder' is missing"),
    "nameless encoder": (lambda c, _a: c["encoder"].pop("name"), "'name' is missing"),
    "calibrator of another kind": (lambda c, _a: part(c).update(calibrator=["flow"]), "list"),
    "encoder of another kind": (lambda c, _a: c.update(encoder="mini"), "str"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_does_not_hang_together(saved, damage):
    change, message = DAMAGE[damage]
    rewrite(saved, change)
    with pytest.raises(ModelFolderError, match=message) as caught:
        BertFlow.from_pretrained(saved, device="cpu")
    assert str(saved / "config.json") in str(caught.value)
    assert "model.safetensors" in str(caught.value)
    assert "copy the whole folder again, or fit the model again" in str(caught.value)


def test_damage_on_disk_is_told_by_the_same_sentences(saved, tmp_path, tiny_bert):
    with pytest.raises(ModelFolderError, match="does not exist"):
        BertFlow.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match="not written by bertflow but by bert"):
        BertFlow.from_pretrained(tiny_bert)
    with pytest.raises(ModelFolderError, match="'someone/model' is not a folder here"):
        BertFlow.from_pretrained("someone/model")
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged"):
        BertFlow.from_pretrained(saved)


# --- the hub, and what a model tells of itself


SCORE = Score(61.25, 58.5, 63.75, "all", "spearman", 30, {"all": 61.25}, 0.95)


@pytest.fixture
def model(encoder, sentences):
    """A model that a test may change."""
    return BertFlow.fit(sentences[:80], encoder, calibrator=Standardize())


def test_results_and_card_survive_loading_and_saving(model, tmp_path):
    model.add_result("Tea", SCORE, split=None)
    model.card["license"] = "mit"
    again = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "first"), device="cpu")
    folder = again.save_pretrained(tmp_path / "second")
    assert again.results == model.results
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "mit"
    assert card.data.eval_results[0].metric_value == 61.25
    assert str(again.generate_model_card("second")) == (folder / "README.md").read_text(encoding="utf-8")


def test_results_do_not_follow_to_another_encoder(model, tmp_path, tiny_bert):
    model.add_result("Tea", SCORE)
    folder = model.save_pretrained(tmp_path / "model")
    cls = Encoder(tiny_bert, "cls", device="cpu")
    with pytest.warns(UserWarning, match="other weights or settings"):
        other = BertFlow.from_pretrained(folder, encoder=cls, accept_changed_encoder=True)
    assert other.results == []


def test_pushing_saves_whole_and_uploads(model, monkeypatch):
    seen = {}

    def push(folder, repo_id, **options):
        seen.update(options, repo_id=repo_id, config=model_folder.load(folder)[0], bundle=(folder / "encoder").is_dir())
        return "address"

    monkeypatch.setattr(model_folder, "push", push)
    assert model.push_to_hub("me/model", bundle_encoder=True, private=True, token="secret") == "address"
    assert (seen["repo_id"], seen["private"], seen["token"], seen["bundle"]) == ("me/model", True, "secret", True)
    assert seen["config"]["training"] == model.training


def test_loading_from_the_hub_passes_everything_on(model, tmp_path, monkeypatch):
    folder, seen = model.save_pretrained(tmp_path / "model"), {}
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **hub: seen.update(hub, name=name) or folder)
    again = BertFlow.from_pretrained(
        "me/model", revision="v1", token="secret", cache_dir=tmp_path / "cache", force_download=True, device="cpu"
    )
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert seen == {
        "name": "me/model",
        "revision": "v1",
        "token": "secret",
        "cache_dir": tmp_path / "cache",
        "local_files_only": False,
        "force_download": True,
    }


def test_a_calibrator_alone_becomes_a_model_with_an_encoder(model, tmp_path):
    folder = model.calibrator.save_pretrained(tmp_path / "calibrator")
    again = BertFlow.from_pretrained(folder, encoder=model.encoder)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ModelFolderError, match="for a calibrator alone, give encoder="):
        BertFlow.from_pretrained(folder)
    with pytest.raises(ModelFolderError, match="exists and is not a bertflow model"):
        model.calibrator.save_pretrained(tmp_path)


def test_the_calibrator_of_a_model_loads_alone(model, tmp_path):
    calibrator = Calibrator.from_pretrained(model.save_pretrained(tmp_path / "model"))
    x = model.encoder.encode(TEXTS)
    np.testing.assert_array_equal(calibrator.transform(x), model.calibrator.transform(x))


def test_an_encoder_waits_until_somebody_needs_it(model, tmp_path, change_config):
    folder = model.save_pretrained(tmp_path / "model")
    change_config(folder, lambda config: config["encoder"].update(name="/gone"))
    later = BertFlow.from_pretrained(folder, defer_encoder=True, device="cpu")
    x = model.encoder.encode(TEXTS)
    np.testing.assert_array_equal(later.calibrator.transform(x), model.calibrator.transform(x))
    assert (later.dim, later.encoder.name, later.fingerprint) == (model.dim, "/gone", model.fingerprint)
    with pytest.raises(ModelFolderError, match="encoder '/gone' cannot be loaded"):
        later.encode(TEXTS)


def test_a_model_of_mini_names_its_version(mini, sentences, tmp_path, change_config):
    folder = BertFlow.fit(sentences[:60], mini, recipe="sn").save_pretrained(tmp_path / "model")
    assert model_folder.load_config(folder)["encoder"]["name"] == "mini-1"
    change_config(folder, lambda config: config["encoder"].update(name="mini-2"))
    with pytest.raises(ModelFolderError, match=r"ships 'mini-1', not 'mini-2', and another mini would give other vec"):
        BertFlow.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize("name", ["mini", "mini-1"])
def test_mini_by_its_version(name):
    assert Encoder(name, device="cpu").name == "mini"
