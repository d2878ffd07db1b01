import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import yaml
from huggingface_hub import ModelCard, ModelHubMixin
from sklearn.exceptions import NotFittedError

from bertflow import BertFlow, Encoder, FlowCalibrator, Whitening
from bertflow.calibrators import Identity, RemoveTopComponents, Standardize
from bertflow.errors import InputError, ModelFolderError
from bertflow.evaluation import Score, evaluate_task, load_task
from bertflow.storage import model_folder

TEXTS = ["the cat sat on the mat", "a dog runs", "tea", "the red house and then tea"]


@pytest.fixture(scope="module")
def encoder(small_model):
    return small_model.encoder


@pytest.fixture
def saved(small_model, tmp_path):
    return small_model.save_pretrained(tmp_path / "model")


@pytest.fixture(scope="module")
def vectors(small_model):
    return small_model.encode(TEXTS)


# --- fit and encode


def test_one_text_gives_a_vector_and_many_give_rows(small_model, vectors):
    assert vectors.shape == (4, 16) == (len(TEXTS), small_model.dim)
    assert vectors.dtype == np.float32
    one = small_model.encode(TEXTS[0])
    assert one.shape == (16,)
    np.testing.assert_allclose(one, vectors[0], atol=1e-4)
    assert small_model.encode([TEXTS[0]]).shape == (1, 16)
    assert small_model.encode("").shape == (16,)


def test_encode_is_the_calibrated_vector_of_the_encoder(small_model, vectors):
    raw = small_model.encoder.encode(TEXTS)
    np.testing.assert_array_equal(vectors, small_model.calibrator.transform(raw))
    assert not np.allclose(vectors, raw)
    np.testing.assert_allclose(small_model.calibrator.inverse_transform(vectors), raw, atol=1e-3)


def test_calibrated_training_sentences_are_near_a_standard_gaussian(small_model, sentences):
    latents = small_model.encode(sentences)
    raw = small_model.encoder.encode(sentences)
    assert abs(latents.mean()) < 0.2
    assert 0.5 < latents.std() < 1.5
    assert np.abs(latents.mean(0)).max() < np.abs(raw.mean(0)).max()


def test_normalized_vectors_have_length_one(small_model, vectors):
    unit = small_model.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(vectors, axis=1, keepdims=True), vectors, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(small_model.encode("tea", normalize_embeddings=True)), 1, atol=1e-6)


def test_tensors_when_asked(small_model, vectors):
    tensor = small_model.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), vectors)
    assert small_model.encode("tea", convert_to_tensor=True).shape == (16,)


def test_fitting_twice_gives_the_same_model(small_model, encoder, sentences, vectors):
    torch.manual_seed(123)
    again = BertFlow.fit(sentences, encoder, calibrator=FlowCalibrator(epochs=2, random_state=0))
    np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    other = BertFlow.fit(sentences, encoder, calibrator=FlowCalibrator(epochs=2, random_state=1))
    assert not np.allclose(other.encode(TEXTS), vectors)


def test_repeated_sentences_count_once(small_model, encoder, sentences, vectors):
    doubled = BertFlow.fit([*sentences, *sentences[:50]], encoder, calibrator=FlowCalibrator(epochs=2, random_state=0))
    np.testing.assert_array_equal(doubled.encode(TEXTS), vectors)
    assert doubled.training["sentences"] == len(sentences) == small_model.training["sentences"]
    assert doubled.training["sentences_sha256"] == small_model.training["sentences_sha256"]


def test_fit_passes_settings_on(tiny_bert, sentences):
    model = BertFlow.fit(sentences[:60], tiny_bert, "mean", "paper", random_state=5, device="cpu", max_length=20)
    assert model.encoder.pooling == "mean"
    assert model.encoder.max_length == 20
    assert model.calibrator.preset == "paper"
    assert model.calibrator.random_state == 5
    assert model.calibrator.device == "cpu"  # the flow runs where the encoder was told to


def test_few_sentences_are_logged(encoder, caplog):
    with caplog.at_level(logging.WARNING, "bertflow"):
        BertFlow.fit(TEXTS, encoder, calibrator=Standardize())
    assert "Only 4 different sentences" in caplog.text


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("one text", "Many texts were wanted"),
        ([], "the list is empty"),
        (["tea", None], "Text 1 is None"),
        (["tea"] * 50, "at least two different ones"),
        (None, "got NoneType"),
    ],
)
def test_fit_refuses_what_cannot_be_fitted(encoder, bad, message):
    with pytest.raises(InputError, match=message):
        BertFlow.fit(bad, encoder)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "the list is empty"),
        (["tea", None, 3], "Text 1 is None"),
        ([float("nan")], "Text 0 is nan"),
        (None, "got NoneType"),
        (b"tea", "got one"),
        (5, "got int"),
    ],
)
def test_encode_refuses_what_is_not_text(small_model, bad, message):
    with pytest.raises(InputError, match=message):
        small_model.encode(bad)


def test_settings_beside_a_loaded_encoder_are_refused(encoder, sentences):
    with pytest.raises(InputError, match="brings its own pooling"):
        BertFlow.fit(sentences, encoder, "mean")


# --- similarity and density


def test_similarity_of_two_texts_is_a_number(small_model, vectors):
    a, b = vectors[:2]
    cosine = small_model.similarity(TEXTS[0], TEXTS[1])
    assert isinstance(cosine, float)
    assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-4)
    assert small_model.similarity("tea", "tea") == pytest.approx(1, abs=1e-5)
    assert small_model.similarity("", "") == pytest.approx(1, abs=1e-5)


def test_similarity_of_lists_is_a_matrix_whatever_form_they_have(small_model, vectors):
    expected = small_model.similarity(TEXTS, TEXTS[:3])
    assert expected.shape == (4, 3)
    np.testing.assert_allclose(np.diag(expected), 1, atol=1e-5)
    forms = [vectors[:3], vectors[:3].tolist(), torch.from_numpy(vectors[:3]), np.array(TEXTS[:3]), iter(TEXTS[:3])]
    for form in forms:
        np.testing.assert_allclose(small_model.similarity(TEXTS, form), expected, atol=1e-5)
    np.testing.assert_allclose(small_model.similarity(TEXTS[1], TEXTS[:3]), expected[1:2], atol=1e-5)
    np.testing.assert_allclose(small_model.similarity(TEXTS, TEXTS[1]), expected[:, 1:2], atol=1e-5)


def test_similarity_of_pandas_columns(small_model):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(TEXTS, index=[5, 6, 7, 8])
    expected = small_model.similarity(TEXTS, TEXTS)
    np.testing.assert_allclose(small_model.similarity(column, TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "empty"),
        (np.ones((2, 5)), "5 dimensions .* this model gives 16"),
        (np.ones(16), "two axes"),
        (["tea", None], "Text 1 is None"),
        ([[np.nan] * 16], "NaN"),
    ],
    ids=str,
)
def test_similarity_refuses_what_cannot_be_compared(small_model, bad, message):
    with pytest.raises(InputError, match=message):
        small_model.similarity(bad, "tea")


def test_density_of_texts(small_model, sentences):
    scores = small_model.score_samples(sentences)
    assert scores.shape == (400,)
    np.testing.assert_allclose(
        scores, small_model.calibrator.score_samples(small_model.encoder.encode(sentences)), rtol=1e-6
    )
    assert small_model.score_samples("tea").shape == (1,)
    assert small_model.score_samples(["z z z z z z z z z z z z z z"])[0] < np.median(scores)


def test_a_linear_map_is_no_density(encoder, sentences):
    model = BertFlow.fit(sentences, encoder, calibrator=Whitening(n_components=4))
    assert model.dim == 4
    assert model.encode(TEXTS).shape == (4, 4)
    with pytest.raises(InputError, match="Whitening is not a density; fit a FlowCalibrator"):
        model.score_samples(TEXTS)


def test_parts_that_do_not_belong_together(encoder):
    calibrator = Standardize().fit(np.random.default_rng(0).normal(size=(50, 7)))
    with pytest.raises(InputError, match=r"fitted on 7 dimensions, but the encoder .* gives 16: they do not belong"):
        BertFlow(encoder, calibrator)
    with pytest.raises(NotFittedError, match="not fitted"):
        BertFlow(encoder, Standardize())


def test_repr_says_what_it_is(small_model, tiny_bert):
    assert repr(small_model).startswith(f"BertFlow(encoder={str(tiny_bert)!r}, calibrator=FlowCalibrator(")
    assert repr(small_model).endswith("dim=16)")


# --- save and load


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
    assert config["calibrator"]["class"] == "FlowCalibrator"
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
    with pytest.raises(ModelFolderError, match="cannot be loaded"):
        BertFlow.from_pretrained(folder)


def test_another_encoder_is_named_in_a_warning(saved, tiny_bert, small_model):
    with pytest.warns(UserWarning, match="was fitted on the encoder '.*bert'; '.*bert' has other weights or settings"):
        model = BertFlow.from_pretrained(saved, encoder=Encoder(tiny_bert, "mean", device="cpu"))
    assert model.encoder.pooling == "mean"
    same = BertFlow.from_pretrained(saved, encoder=Encoder(tiny_bert, device="cpu"))  # and no warning
    np.testing.assert_array_equal(same.encode(TEXTS), small_model.encode(TEXTS))


def test_an_encoder_that_changed_in_place_is_noticed(movable, tmp_path, tiny):
    folder = movable.save_pretrained(tmp_path / "model")
    shutil.rmtree(tmp_path / "encoder")
    shutil.copytree(tiny("distilbert"), tmp_path / "encoder")
    with pytest.warns(UserWarning, match="has other weights or settings"):
        BertFlow.from_pretrained(folder)


def test_encoder_of_another_dimension(saved, mini):
    with pytest.raises(InputError, match=r"fitted on 16 dimensions, but the encoder 'mini' gives 256"):
        BertFlow.from_pretrained(saved, encoder=mini)


class Lengths:
    """The least that an encoder can be."""

    name, dim, fingerprint = "lengths", 2, "1"

    def encode(self, sentences, *, show_progress_bar=False):
        return np.array([[len(text), text.count(" ")] for text in sentences], dtype=np.float32)

    def describe(self):
        return {"kind": "mine", "name": self.name, "fingerprint": self.fingerprint}


def test_own_encoders_work_and_are_given_again_when_loading(sentences, tmp_path):
    model = BertFlow.fit(sentences, Lengths(), calibrator=Standardize())
    folder = model.save_pretrained(tmp_path / "model")
    again = BertFlow.from_pretrained(folder, encoder=Lengths())
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ModelFolderError, match=r"encoder 'lengths' cannot be loaded: .*Give one with encoder="):
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
    config["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


DAMAGE = {
    "missing array": (lambda _c, a: a.pop("levels.0.0.actnorm.loc"), "'levels.0.0.actnorm.loc' is missing"),
    "extra array": (lambda _c, a: a.update(ghost=np.ones(3)), "'ghost' is not expected"),
    "misshapen array": (
        lambda _c, a: a.update({"levels.0.0.actnorm.loc": np.ones(5, np.float32)}),
        r"'levels.0.0.actnorm.loc' has shape \(5,\); \(16,\) was expected",
    ),
    "unknown calibrator": (lambda c, _a: c["calibrator"].update({"class": "Magic"}), "Unknown calibrator 'Magic'"),
    "unknown setting": (lambda c, _a: c["calibrator"]["params"].update(magic=1), "magic"),
    "wrong setting": (lambda c, _a: c["calibrator"]["params"].update(levels="many"), "levels|'str'|many"),
    "other dimension": (lambda c, _a: c["calibrator"].update(n_features_in=8), "shape|missing|expected"),
    "no dimension": (lambda c, _a: c["calibrator"].pop("n_features_in"), "n_features_in"),
    "no settings": (lambda c, _a: c["calibrator"].pop("params"), "params"),
    "no calibrator": (lambda c, _a: c.pop("calibrator"), "'calibrator' is missing"),
    "no encoder": (lambda c, _a: c.pop("encoder"), "'encoder' is missing"),
    "nameless encoder": (lambda c, _a: c["encoder"].pop("name"), "'name' is missing"),
    "calibrator of another kind": (lambda c, _a: c.update(calibrator=["flow"]), "list"),
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
    assert "copy the whole folder again, or fit the model anew" in str(caught.value)


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
    with pytest.warns(UserWarning, match="other weights or settings"):
        other = BertFlow.from_pretrained(folder, encoder=Encoder(tiny_bert, "cls", device="cpu"))
    assert other.results == []


def test_pushing_saves_whole_and_uploads(model, monkeypatch):
    seen = {}

    def push(folder, repo_id, **options):
        seen.update(options, repo_id=repo_id, config=model_folder.load(folder)[0], bundle=(folder / "encoder").is_dir())
        return "address"

    monkeypatch.setattr(model_folder, "push", push)
    assert isinstance(model, ModelHubMixin)
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
    folder = model_folder.save_calibrator(model.calibrator, tmp_path / "calibrator")
    again = BertFlow.from_pretrained(folder, encoder=model.encoder)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ModelFolderError, match="for a calibrator alone, give encoder="):
        BertFlow.from_pretrained(folder)
    with pytest.raises(ModelFolderError, match="exists and is not a bertflow model"):
        model_folder.save_calibrator(model.calibrator, tmp_path)


def test_the_calibrator_of_a_model_loads_alone(model, tmp_path):
    calibrator = model_folder.load_calibrator(model.save_pretrained(tmp_path / "model"))
    x = model.encoder.encode(TEXTS)
    np.testing.assert_array_equal(calibrator.transform(x), model.calibrator.transform(x))


# --- real sentences: slow, and only where the data sets are


class Remembering:
    """Knows the vectors of all sentences, so that they are encoded once for all tests."""

    def __init__(self, encoder, sentences):
        self.name, self.dim, self.fingerprint = encoder.name, encoder.dim, encoder.fingerprint
        self.vectors = dict(zip(sentences, encoder.encode(sentences), strict=True))

    def encode(self, sentences, *, show_progress_bar=False):
        return np.stack([self.vectors[sentence] for sentence in sentences])


@pytest.fixture(scope="module")
def real(request, mini):
    """STS-B's test pairs, the mini encoder's vectors of their sentences, and a flow fitted on them."""
    named = os.environ.get("BERTFLOW_DATA")
    data = Path(named) if named else Path(request.config.rootpath).parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip(f"the real data sets are not at {data}; set BERTFLOW_DATA to their folder")
    task = load_task("STS-B", data)
    encoder = Remembering(mini, task.sentences)
    return task, encoder, BertFlow.fit(task.sentences, encoder)


def test_real_flow_raises_spearman_by_nine_points(real):
    task, encoder, model = real
    raw = evaluate_task(task, encoder.encode, resamples=0).value
    flow = evaluate_task(task, model.encode, resamples=0).value
    # Of the default seed, 0: +10.05. Seeds 0 to 6 gave +9.6 to +10.7.
    assert flow >= raw + 9, f"raw {raw:.2f}, flow {flow:.2f}"


def test_real_embeddings_come_back_from_their_latents(real):
    task, encoder, model = real
    vectors = encoder.encode(task.sentences)
    latents = model.calibrator.transform(vectors)
    assert vectors.dtype == latents.dtype == np.float32
    assert np.abs(model.calibrator.inverse_transform(latents) - vectors).max() < 1e-3


# --- going on from a fitted model


def test_partial_fit_adapts_the_calibrator_and_forgets_old_results(encoder, sentences):
    model = BertFlow.fit(sentences[:200], encoder)
    model.add_result("STS-B", SCORE)
    before = model.calibrator.score(encoder.encode(sentences[200:]))
    assert model.partial_fit([*sentences[200:], *sentences[200:]]) is model
    assert model.calibrator.score(encoder.encode(sentences[200:])) > before
    assert model.results == []
    assert model.training["sentences"] == 200
    assert model.training["earlier_sentences"] == 200
    assert model.partial_fit(sentences[:50]).training["earlier_sentences"] == 400


def test_partial_fit_of_a_linear_calibrator_is_exact_until_it_is_saved(encoder, sentences, tmp_path):
    model = BertFlow.fit(sentences[:200], encoder, calibrator=Whitening()).partial_fit(sentences[200:])
    whole = BertFlow.fit(sentences, encoder, calibrator=Whitening())
    assert np.allclose(model.encode(TEXTS), whole.encode(TEXTS), atol=1e-3)
    loaded = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "model"), encoder=encoder)
    with pytest.raises(InputError, match="keeps no moments to add to"):
        loaded.partial_fit(sentences)


def test_partial_fit_needs_a_calibrator_that_can(encoder, sentences):
    class _Fixed(Identity):
        partial_fit = property()  # as if it were not there

    with pytest.raises(InputError, match="_Fixed has no partial_fit"):
        BertFlow.fit(sentences[:20], encoder, calibrator=_Fixed()).partial_fit(sentences)
