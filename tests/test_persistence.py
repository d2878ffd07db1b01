import hashlib
import json

import numpy as np
import pytest
import safetensors.numpy
import yaml

from bertflow import atomic, persistence
from bertflow.errors import ModelFolderError
from bertflow.version import __version__

CONFIG = {
    "encoder": {"kind": "transformers", "name": "mini", "pooling": "mean", "fingerprint": "abc"},
    "calibrator": {"class": "Whitening", "params": {"n_components": None, "shrinkage": 0.1}},
    "training": {"sentences": 4000},
}
ARRAYS = {"mean": np.arange(3.0), "kernel": np.arange(6, dtype=np.float32).reshape(3, 2)}


@pytest.fixture
def folder(tmp_path):
    return persistence.save(tmp_path / "model", CONFIG, ARRAYS)


def front_matter(card: str) -> dict:
    start, front, body = card.split("---\n", 2)
    assert start == ""
    assert body.strip()
    return yaml.safe_load(front)


# --- what is written


def test_what_was_saved_comes_back(folder):
    config, arrays = persistence.load(folder)
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
    _, arrays = persistence.load(persistence.save(tmp_path / "model", CONFIG, {"x": array}))
    assert arrays["x"].shape == np.shape(array)
    np.testing.assert_array_equal(arrays["x"], array)


def test_the_folder_holds_the_three_files_and_no_pickle(folder):
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["format"] == "bertflow"
    assert config["format_version"] == persistence.FORMAT_VERSION
    assert config["bertflow_version"] == __version__
    assert config["bundled_encoder"] is False
    safetensors.numpy.load_file(folder / "model.safetensors")
    # A pickle of protocol 2 or newer begins with these bytes; a zip of torch's kind with PK.
    assert not [file for file in folder.iterdir() if file.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"PK")]


def test_the_encoder_is_bundled_by_its_own_writer(tmp_path):
    def write(place):
        place.mkdir()
        (place / "weights.txt").write_text("1 2 3")

    folder = persistence.save(tmp_path / "model", CONFIG, ARRAYS, write)
    assert (folder / "encoder" / "weights.txt").read_text() == "1 2 3"
    assert persistence.load_config(folder)["bundled_encoder"] is True


def test_nothing_changes_when_the_encoder_cannot_be_written(folder):
    def fail(_place):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        persistence.save(folder, {**CONFIG, "training": {"sentences": 1}}, ARRAYS, fail)
    assert persistence.load_config(folder)["training"] == {"sentences": 4000}
    assert [file.name for file in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("mini", None),
        ("bert-base-uncased", "bert-base-uncased"),
        ("someone/some-model", "someone/some-model"),
        ("/somewhere/local", None),
        ("./local", None),
        ("C: # 'odd' \"name\" [x]", "C: # 'odd' \"name\" [x]"),
    ],
)
def test_the_model_card_has_yaml_that_parses(name, base):
    card = persistence.model_card({**CONFIG, "encoder": {"name": name}})
    front = front_matter(card)
    assert front["library_name"] == "bertflow"
    assert front["pipeline_tag"] == "sentence-similarity"
    assert "Whitening" in front["tags"]
    assert front.get("base_model") == base
    assert f"`{name}`" in card
    assert "| shrinkage | 0.1 |" in card
    assert "n_components" not in card  # not set, not worth a line


def test_a_local_folder_is_no_base_model(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "base_model" not in front_matter(persistence.model_card({**CONFIG, "encoder": {"name": "here"}}))


# --- where it may be written


def test_our_own_model_is_replaced(folder):
    persistence.save(folder, {**CONFIG, "training": {"sentences": 7}}, {"other": np.ones(2)})
    config, arrays = persistence.load(folder)
    assert config["training"] == {"sentences": 7}
    assert list(arrays) == ["other"]


def test_an_empty_folder_is_taken(tmp_path):
    persistence.save(tmp_path, CONFIG, ARRAYS)
    persistence.load(tmp_path)


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[1, 2]", "{broken", None], ids=str)
def test_a_foreign_folder_is_left_alone(tmp_path, content):
    (tmp_path / "thesis.txt").write_text("years of work")
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(
        ModelFolderError, match=r"exists and is not a bertflow model; nothing was written\. Give another"
    ):
        persistence.save(tmp_path, CONFIG, ARRAYS)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "model").write_text("a file")
    with pytest.raises(ModelFolderError, match="is not a bertflow model"):
        persistence.save(tmp_path / "model", CONFIG, ARRAYS)
    assert (tmp_path / "model").read_text() == "a file"


# --- damaged, foreign, newer: the sentence names the file and says what to do


def test_missing_folder(tmp_path):
    with pytest.raises(ModelFolderError, match=r"nowhere does not exist.*`bertflow fit` makes one"):
        persistence.load(tmp_path / "nowhere")


def test_folder_without_config(tmp_path):
    with pytest.raises(ModelFolderError, match=r"holds no config\.json.*`bertflow fit` makes one"):
        persistence.load(tmp_path)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is missing: copy the whole folder again, or fit"):
        persistence.load(folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 50, -1])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged .*copy the folder again, or fit"):
        persistence.load(folder)


def test_one_altered_bit_is_noticed(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    for place in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(bytes(b ^ (i == place) for i, b in enumerate(content)))
        with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged"):
            persistence.load(folder)


def test_weights_of_another_model(folder, tmp_path):
    other = persistence.save(tmp_path / "other", CONFIG, {"mean": np.ones(3)})
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(ModelFolderError, match=r"not the file that belongs to its config\.json"):
        persistence.load(folder)


def test_weights_that_are_no_safetensors_file(folder):
    (folder / "model.safetensors").write_bytes(b"something else")
    change_config(folder, weights_sha256=hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is not a safetensors file .*fit the model anew"):
        persistence.load(folder)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "bertflow"', b"\xff\xfe\x00", b"not json"], ids=repr)
def test_damaged_config(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"config\.json is damaged .*copy the folder again, or fit"):
        persistence.load(folder)


@pytest.mark.parametrize("content", ["[]", "null", "3", '"bertflow"', "{}", '{"format": "other"}'])
def test_config_of_another_program(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"config\.json was not written by bertflow but by another program"):
        persistence.load(folder)


def test_a_plain_bert_folder_says_how_to_use_it(tiny_bert):
    with pytest.raises(
        ModelFolderError, match=r"not written by bertflow but by bert\. To fit a flow on that model: Bert"
    ):
        persistence.load(tiny_bert)


@pytest.mark.parametrize("version", [persistence.FORMAT_VERSION + 1, 99, "2", None])
def test_newer_format_says_how_to_upgrade(folder, version):
    change_config(folder, format_version=version, bertflow_version="9.9")
    with pytest.raises(ModelFolderError, match=rf"version {version}, written by bertflow 9\.9.*pip install --upgrade"):
        persistence.load(folder)


def test_config_without_checksum(folder):
    change_config(folder, weights_sha256=None)
    with pytest.raises(ModelFolderError, match="checksum differs"):
        persistence.load(folder)


@pytest.mark.parametrize("find", [persistence.locate, persistence.load, persistence.load_config])
def test_a_model_set_aside_by_a_killed_save_is_found(folder, find):
    folder.rename(atomic._aside(folder))
    find(folder)
    assert (folder / "config.json").is_file()


# --- where it is


@pytest.mark.parametrize("name", ["model", "./model", "a/b/model", "/a/model", "~/model"])
def test_what_cannot_be_a_hub_id_is_a_folder(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert str(persistence.locate(name)) == name.removeprefix("./")


def test_a_folder_here_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "model").mkdir(parents=True)
    assert persistence.locate("someone/model").is_dir()


def test_hub_id_while_offline_is_one_clear_sentence():
    with pytest.raises(ModelFolderError, match=r"'someone/model' is not a folder here and could not be had") as caught:
        persistence.locate("someone/model")
    assert "\n" not in str(caught.value)
    assert "offline" in str(caught.value)


def test_hub_errors_without_a_message_have_a_sentence_too(monkeypatch):
    def fail(*_args, **_kwargs):
        raise ConnectionError

    monkeypatch.setattr(persistence, "snapshot_download", fail)
    with pytest.raises(ModelFolderError, match=r"private.*: ConnectionError"):
        persistence.locate("someone/model")


def test_what_the_hub_needs_is_passed_on(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(persistence, "snapshot_download", lambda name, **hub: seen.update(hub, name=name) or tmp_path)
    assert persistence.locate("someone/model", revision="v1", token="secret") == tmp_path
    assert seen == {"name": "someone/model", "revision": "v1", "token": "secret"}
