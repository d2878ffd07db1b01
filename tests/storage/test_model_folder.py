import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from huggingface_hub import HfApi, ModelCard

import bertflow
from bertflow import Calibrator, FlowCalibrator, RemoveTopComponents, Whitening
from bertflow.errors import InputError, ModelFolderError
from bertflow.storage import atomic, model_folder
from bertflow.version import __version__

CONFIG = {
    "recipe": "whitening",
    "encoder": {"class": "Encoder", "name": "mini-1", "pooling": "mean", "fingerprint": "abc"},
    "parts": [
        {
            "view": {"class": "Pooled", "params": {"pooling": None}, "dim": 3},
            "calibrator": {"class": "Whitening", "params": {"n_components": None, "shrinkage": 0.1}},
            "weight": 1.0,
            "scale": 1.0,
        }
    ],
    "training": {"sentences": 4000},
}
ARRAYS = {"0.mean": np.arange(3.0), "0.kernel": np.arange(6, dtype=np.float32).reshape(3, 2)}


@pytest.fixture
def folder(tmp_path):
    return model_folder.save(tmp_path / "model", CONFIG, ARRAYS)


# --- what is written


def test_what_was_saved_comes_back(folder):
    config, arrays = model_folder.load(folder)
    assert CONFIG.items() <= config.items()
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(24.0).reshape(4, 6)[::2, ::-3],
        np.arange(5, dtype=np.int64),
        np.float32(3) * np.ones((), dtype=np.float32).reshape(()),
        np.zeros((0, 4)),
        np.arange(4.0).astype(">f8"),
    ],
    ids=["fortran", "transposed", "strided", "integers", "scalar", "empty", "big-endian"],
)
def test_arrays_come_back_however_they_lie_in_memory(tmp_path, array):
    _, arrays = model_folder.load(model_folder.save(tmp_path / "model", CONFIG, {"x": array}))
    assert arrays["x"].shape == np.shape(array)
    np.testing.assert_array_equal(arrays["x"], array)


def test_the_folder_holds_the_three_files_and_no_pickle(folder):
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["format"] == "bertflow"
    assert config["format_version"] == model_folder.FORMAT_VERSION
    assert config["bertflow_version"] == __version__
    assert config["bundled_encoder"] is False
    safetensors.numpy.load_file(folder / "model.safetensors")
    # A pickle of protocol 2 or newer begins with these bytes; a zip of torch's kind with PK.
    assert not [file for file in folder.iterdir() if file.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"PK")]


def test_the_encoder_is_bundled_by_its_own_writer(tmp_path):
    def write(place):
        place.mkdir()
        (place / "weights.txt").write_text("1 2 3")

    folder = model_folder.save(tmp_path / "model", CONFIG, ARRAYS, write_encoder=write)
    assert (folder / "encoder" / "weights.txt").read_text() == "1 2 3"
    assert model_folder.load_config(folder)["bundled_encoder"] is True


@pytest.fixture
def learnt(tmp_path):
    """A model whose view learnt something."""

    def write(room):
        (room / "parts" / "0").mkdir(parents=True)
        (room / "parts" / "0" / "table.safetensors").write_bytes(b"what it learnt")

    return model_folder.save(tmp_path / "learnt", CONFIG, ARRAYS, write)


def test_what_views_learnt_has_a_checksum_too(learnt):
    config, _ = model_folder.load(learnt)
    assert sorted(config["sha256"]) == ["model.safetensors", "parts/0/table.safetensors"]
    table = model_folder.view_folder(learnt, config, 0) / "table.safetensors"
    assert table.read_bytes() == b"what it learnt"
    table.write_bytes(b"something else")
    with pytest.raises(ModelFolderError, match=r"table\.safetensors is damaged"):
        model_folder.load(learnt)
    table.unlink()
    with pytest.raises(ModelFolderError, match=r"table\.safetensors is missing"):
        model_folder.load(learnt)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "parts/../../secret"])
def test_no_path_leaves_the_folder(learnt, name, change_config):
    change_config(learnt, lambda config: config.update(sha256=config["sha256"] | {name: "0"}))
    with pytest.raises(ModelFolderError, match="names a file outside its folder"):
        model_folder.load(learnt)


def test_arrays_of_a_part_have_their_own_names(folder):
    _, arrays = model_folder.load(folder)
    assert sorted(model_folder.arrays_of_part(arrays, 0)) == ["kernel", "mean"]
    assert model_folder.arrays_of_part(arrays, 1) == {}
    assert sorted(model_folder.arrays_of_part({"1.x": 1, "11.x": 2, "1.y.1.z": 3}, 1)) == ["x", "y.1.z"]


def test_nothing_changes_when_the_encoder_cannot_be_written(folder):
    def fail(_place):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        model_folder.save(folder, {**CONFIG, "training": {"sentences": 1}}, ARRAYS, write_encoder=fail)
    assert model_folder.load_config(folder)["training"] == {"sentences": 4000}
    assert [file.name for file in folder.parent.iterdir()] == ["model"]


def test_the_card_names_the_folder(folder):
    assert 'BertFlow.from_pretrained("model")' in (folder / "README.md").read_text(encoding="utf-8")


# --- where it may be written


def test_our_own_model_is_replaced(folder):
    model_folder.save(folder, {**CONFIG, "training": {"sentences": 7}}, {"other": np.ones(2)})
    config, arrays = model_folder.load(folder)
    assert config["training"] == {"sentences": 7}
    assert list(arrays) == ["other"]


def test_an_empty_folder_is_taken(tmp_path):
    model_folder.save(tmp_path, CONFIG, ARRAYS)
    model_folder.load(tmp_path)


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[1, 2]", "{broken", None], ids=str)
def test_a_foreign_folder_is_left_alone(tmp_path, content):
    (tmp_path / "thesis.txt").write_text("years of work")
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(
        ModelFolderError, match=r"exists and is not a bertflow model; nothing was written\. Give another"
    ):
        model_folder.save(tmp_path, CONFIG, ARRAYS)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "model").write_text("a file")
    with pytest.raises(ModelFolderError, match="is not a bertflow model"):
        model_folder.save(tmp_path / "model", CONFIG, ARRAYS)
    assert (tmp_path / "model").read_text() == "a file"


# --- damaged, foreign, newer: the sentence names the file and says what to do


def test_missing_folder(tmp_path):
    with pytest.raises(ModelFolderError, match=r"nowhere does not exist.*`bertflow fit` makes one"):
        model_folder.load(tmp_path / "nowhere")


def test_folder_without_config(tmp_path):
    with pytest.raises(ModelFolderError, match=r"holds no config\.json.*`bertflow fit` makes one"):
        model_folder.load(tmp_path)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is missing: copy the whole folder again, or fit"):
        model_folder.load(folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 50, -1])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged .*copy the whole folder again, or fit"):
        model_folder.load(folder)


def test_one_altered_bit_is_noticed(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    for place in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(bytes(b ^ (i == place) for i, b in enumerate(content)))
        with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged"):
            model_folder.load(folder)


def test_weights_of_another_model(folder, tmp_path):
    other = model_folder.save(tmp_path / "other", CONFIG, {"0.mean": np.ones(3)})
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(ModelFolderError, match=r"belongs to something else"):
        model_folder.load(folder)


def test_weights_that_are_no_safetensors_file(folder, change_config):
    (folder / "model.safetensors").write_bytes(b"something else")
    digest = hashlib.sha256(b"something else").hexdigest()
    change_config(folder, lambda config: config.update(sha256={"model.safetensors": digest}))
    with pytest.raises(
        ModelFolderError, match=r"model\.safetensors is not a safetensors file .*copy the whole folder again"
    ):
        model_folder.load(folder)


@pytest.mark.parametrize("name", ["recipe", "encoder", "parts", "bertflow_version", "bundled_encoder"])
def test_settings_that_decide_the_vectors_are_sealed(folder, name):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {name: "something else"}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"config\.json is damaged or was changed by another program"):
        model_folder.load(folder)


@pytest.mark.parametrize("name", ["training", "results", "card"])
def test_what_changes_no_vector_may_be_edited(folder, name):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {name: {}}), encoding="utf-8")
    assert model_folder.load(folder)[0][name] == {}


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "bertflow"', b"\xff\xfe\x00", b"not json"], ids=repr)
def test_damaged_config(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"config\.json is damaged .*copy the whole folder again, or fit"):
        model_folder.load(folder)


@pytest.mark.parametrize("content", ["[]", "null", "3", '"bertflow"', "{}", '{"format": "other"}'])
def test_config_of_another_program(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"config\.json was not written by bertflow but by another program"):
        model_folder.load(folder)


def test_a_plain_bert_folder_says_how_to_use_it(tiny_bert):
    with pytest.raises(
        ModelFolderError, match=r"not written by bertflow but by bert\. To fit a flow on that model: Bert"
    ):
        model_folder.load(tiny_bert)


@pytest.mark.parametrize("version", [model_folder.FORMAT_VERSION + 1, 99, "3", None])
def test_newer_format_says_how_to_upgrade(folder, version, change_config):
    change_config(folder, lambda config: config.update(format_version=version, bertflow_version="9.9"))
    with pytest.raises(
        ModelFolderError, match=rf"version {version!r}, written by bertflow 9\.9.*pip install --upgrade"
    ):
        model_folder.load(folder)


@pytest.mark.parametrize("known", [None, {}, {"model.safetensors": None}, {"README.md": "0"}, "abc"])
def test_config_without_checksum(folder, known, change_config):
    change_config(folder, lambda config: config.update(sha256=known))
    with pytest.raises(ModelFolderError, match="checksum differs"):
        model_folder.load(folder)


@pytest.mark.parametrize("find", [model_folder.locate, model_folder.load, model_folder.load_config])
def test_a_model_set_aside_by_a_killed_save_is_found(folder, find):
    folder.rename(atomic._aside(folder))
    find(folder)
    assert (folder / "config.json").is_file()


# --- where it is


@pytest.mark.parametrize("name", ["model", "./model", "a/b/model", "/a/model", "~/model"])
def test_what_cannot_be_a_hub_id_is_a_folder(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert str(model_folder.locate(name)) == name.removeprefix("./")


def test_a_folder_here_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "model").mkdir(parents=True)
    assert model_folder.locate("someone/model").is_dir()


def test_hub_id_while_offline_is_one_clear_sentence():
    with pytest.raises(ModelFolderError, match=r"'someone/model' is not a folder here and could not be had") as caught:
        model_folder.locate("someone/model")
    assert "\n" not in str(caught.value)
    assert "offline" in str(caught.value)


def test_hub_errors_without_a_message_have_a_sentence_too(monkeypatch):
    def fail(*_args, **_kwargs):
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(ModelFolderError, match=r"private.*: ConnectionError"):
        model_folder.locate("someone/model")


def test_what_the_hub_needs_is_passed_on(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **hub: seen.update(hub, name=name) or tmp_path
    )
    assert model_folder.locate("someone/model", revision="v1", token="secret") == tmp_path
    assert seen == {"name": "someone/model", "revision": "v1", "token": "secret"}


# --- without torch and the hub's client


def test_reading_needs_numpy_and_safetensors_alone(folder):
    code = f"""
import sys
sys.path.insert(0, {str(Path(bertflow.__file__).parents[1])!r})
for name in ("torch", "yaml", "huggingface_hub", "scipy", "sklearn", "transformers"):
    sys.modules[name] = None  # importing it raises ImportError
from bertflow.storage import model_folder
config, arrays = model_folder.load({str(folder)!r})
print(config["parts"][0]["calibrator"]["class"], arrays["0.kernel"].shape)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.strip() == "Whitening (3, 2)"


# --- calibrators alone


@pytest.mark.parametrize(
    "calibrator", [FlowCalibrator(epochs=1, random_state=0), Whitening(3), RemoveTopComponents(2)], ids=repr
)
def test_a_calibrator_alone_comes_back_exactly(tmp_path, calibrator):
    x = np.random.default_rng(0).normal(size=(60, 6))
    calibrator.fit(x)
    folder = calibrator.save_pretrained(tmp_path / "calibrator")
    again = Calibrator.from_pretrained(folder, device="cpu")
    assert type(again) is type(calibrator)
    np.testing.assert_array_equal(again.transform(x), calibrator.transform(x))
    assert "encoder" not in model_folder.load_config(folder)
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "feature-extraction"
    assert card.data.base_model is None
    assert 'Calibrator.from_pretrained("calibrator")' in card.text


def test_a_calibrator_of_another_class_is_named(tmp_path):
    folder = Whitening().fit(np.random.default_rng(0).normal(size=(9, 3))).save_pretrained(tmp_path / "calibrator")
    assert isinstance(Whitening.from_pretrained(folder), Whitening)
    with pytest.raises(InputError, match="holds a Whitening, not a FlowCalibrator"):
        FlowCalibrator.from_pretrained(folder)


def test_a_model_of_many_parts_has_no_single_calibrator(tmp_path):
    folder = model_folder.save(tmp_path / "model", CONFIG | {"parts": CONFIG["parts"] * 2}, ARRAYS)
    with pytest.raises(ModelFolderError, match=r"a model of 2 parts.*BertFlow\.from_pretrained"):
        Calibrator.from_pretrained(folder)


def test_an_unfitted_calibrator_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        Whitening().save_pretrained(tmp_path / "calibrator")
    assert not list(tmp_path.iterdir())


def test_a_calibrator_that_does_not_hang_together(tmp_path, change_config):
    calibrator = Whitening().fit(np.random.default_rng(0).normal(size=(9, 3)))
    folder = calibrator.save_pretrained(tmp_path / "calibrator")
    change_config(folder, lambda config: config["calibrator"].update(n_features_in=4))
    with pytest.raises(ModelFolderError, match=r"do not make a model \(Array 'mean' has shape .*copy the whole folder"):
        Calibrator.from_pretrained(folder)


# --- results


RESULT = {"task": "sentence-similarity", "dataset": "Tea", "metric": "spearman", "setting": "all", "value": 61.5}


def test_results_go_into_config_and_card(folder):
    assert model_folder.add_results(folder, [RESULT]) == [RESULT]
    assert (
        model_folder.add_results(folder, [{**RESULT, "dataset": "Milk"}, {**RESULT, "value": 62.5}])[0]["value"] == 62.5
    )
    config, _ = model_folder.load(folder)
    assert [(r["dataset"], r["value"]) for r in config["results"]] == [("Tea", 62.5), ("Milk", 61.5)]
    card = ModelCard.load(folder / "README.md")
    assert card.data.model_name == "model"
    assert [(r.dataset_name, r.metric_value) for r in card.data.eval_results] == [("Tea", 62.5), ("Milk", 61.5)]
    assert "| Tea |" in card.text
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_results_into_a_folder_without_a_card(folder):
    (folder / "README.md").unlink()
    model_folder.add_results(folder, [RESULT])
    assert ModelCard.load(folder / "README.md").data.eval_results[0].metric_value == 61.5


@pytest.mark.parametrize(
    ("change", "message"),
    [({"value": None}, "has no value"), ({"value": float("nan")}, "finite"), ({"value": "61"}, "finite")],
)
def test_a_result_that_is_none_changes_nothing(folder, change, message):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(InputError, match=message):
        model_folder.add_results(folder, [{**RESULT, **change}])
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


# --- to the hub


@pytest.fixture
def hub(monkeypatch):
    """A hub that remembers what was asked of it."""
    asked = {}

    def create_repo(self, repo_id, **options):
        asked.update(created=repo_id, token=self.token, **options)
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def upload_folder(self, *, repo_id, folder_path, **options):
        asked.update(options, repo_id=repo_id)
        asked["files"] = {
            file.relative_to(folder_path).as_posix(): file.read_bytes()
            for file in Path(folder_path).rglob("*")
            if file.is_file()
        }
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1", pr_url=None)

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    return asked


def test_push_uploads_the_folder_and_its_card_names_the_repository(folder, hub):
    url = model_folder.push(folder, "my-model", private=True, token="secret", commit_message="First")
    assert url == "https://hub/me/my-model/commit/1"
    assert (hub["created"], hub["token"], hub["private"], hub["exist_ok"]) == ("my-model", "secret", True, True)
    assert (hub["repo_id"], hub["commit_message"], hub["revision"]) == ("me/my-model", "First", None)
    assert sorted(hub["files"]) == ["README.md", "config.json", "model.safetensors"]
    assert b'BertFlow.from_pretrained("me/my-model")' in hub["files"]["README.md"]


def test_a_card_with_own_text_is_pushed_as_it_is(folder, hub):
    card = folder / "README.md"
    own = card.read_text(encoding="utf-8").replace("library_name", "license: mit\nlibrary_name") + "\nWritten by me.\n"
    card.write_text(own, encoding="utf-8")
    model_folder.push(folder, "me/my-model")
    assert hub["files"]["README.md"].decode() == own
    assert hub["commit_message"] == f"Model of bertflow {__version__}"


def test_a_damaged_folder_is_not_pushed(folder, hub):
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(ModelFolderError, match="damaged"):
        model_folder.push(folder, "me/my-model")
    assert not hub


@pytest.mark.parametrize(
    ("name", "warned"), [("/some/where", True), ("mini", False), ("mini-1", False), ("someone/model", False)]
)
def test_an_encoder_that_others_lack_is_told(tmp_path, hub, recwarn, name, warned):
    folder = model_folder.save(tmp_path / "model", {**CONFIG, "encoder": CONFIG["encoder"] | {"name": name}}, ARRAYS)
    if warned:
        with pytest.warns(UserWarning, match="is not on the hub.*bundle_encoder=True"):
            model_folder.push(folder, "me/model")
    else:
        model_folder.push(folder, "me/model")
    assert not recwarn.list
    assert hub["repo_id"] == "me/model"


@pytest.mark.parametrize(("token", "reason"), [("secret", "offline, misspelt, or not yours"), (None, "hf auth login")])
def test_push_while_offline_is_one_clear_sentence(folder, monkeypatch, token, reason):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(
        ModelFolderError, match=rf"could not be pushed to 'me/model' .*{reason}.*offline mode"
    ) as caught:
        model_folder.push(folder, "me/model", token=token)
    assert "\n" not in str(caught.value)


def test_a_name_that_the_hub_refuses(folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "secret")
    with pytest.raises(ModelFolderError, match=r"pushed to 'a b' .*Repo id must"):
        model_folder.push(folder, "a b")


def test_an_onnx_folder_is_named_as_such(tmp_path):
    (tmp_path / "config.json").write_text('{"format": "bertflow-onnx"}')
    with pytest.raises(ModelFolderError, match=r"open it with bertflow\.OnnxModel"):
        model_folder.load(tmp_path)
