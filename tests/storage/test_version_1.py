"""Models that bertflow 0.1 saved load, and give the vectors that it gave (tests/fixtures/version-0.1)."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from bertflow import BertFlow, Calibrator, Standardize
from bertflow.errors import ModelFolderError
from bertflow.storage import model_folder
from bertflow.storage.version_1 import upgraded

OLD = Path(__file__).parents[1] / "fixtures" / "version-0.1"
VIEWS = {
    "flow": ["Pooled"],
    "static": ["TokenTable"],
    "best": ["TokenTable", "Pooled"],
    "sentence-transformers": ["Pooled"],
}


@pytest.fixture(scope="module")
def texts():
    return json.loads((OLD / "texts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def vectors():
    return dict(np.load(OLD / "vectors.npz"))


@pytest.fixture
def model(request):
    """A model of 0.1, loaded without any warning."""
    if request.param == "sentence-transformers":
        pytest.importorskip("sentence_transformers", reason="it needs pip install 'bertflow[sentence-transformers]'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return BertFlow.from_pretrained(OLD / request.param, device="cpu")


every = pytest.mark.parametrize(("model", "kind"), [(kind, kind) for kind in VIEWS], indirect=["model"])


@every
def test_it_gives_the_vectors_that_it_gave(model, kind, texts, vectors):
    np.testing.assert_allclose(model.encode(texts), vectors[kind], atol=1e-5)
    assert [type(part.view).__name__ for part in model.parts] == VIEWS[kind]
    assert model.training["sentences"] == 400
    assert model.encoder.name == "tinybert"


@every
def test_saved_again_it_is_a_model_of_today(model, kind, texts, vectors, tmp_path):
    folder = model.save_pretrained(tmp_path / "model", bundle_encoder=kind != "static")
    config = model_folder.load_config(folder)
    assert config["format_version"] == model_folder.FORMAT_VERSION == 2
    assert len(config["parts"]) == len(VIEWS[kind])
    again = BertFlow.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(again.encode(texts), vectors[kind], atol=1e-5)
    assert (again.fingerprint, again.training) == (model.fingerprint, model.training)


@pytest.mark.parametrize("kind", ["flow", "static", "sentence-transformers"])
def test_its_calibrator_loads_alone(kind):
    config, _ = model_folder.load(OLD / kind)
    calibrator = Calibrator.from_pretrained(OLD / kind, device="cpu")
    assert calibrator.n_features_in_ == config["parts"][0]["view"]["dim"]


def test_a_calibrator_alone_stays_as_it_is():
    x = np.random.default_rng(0).normal(size=(9, 3))
    settings, arrays = Standardize().fit(x).get_state()
    assert upgraded({"calibrator": settings}, arrays) == ({"calibrator": settings}, arrays)


def test_mini_is_the_mini_of_that_time():
    known = {"kind": "transformers", "name": "mini", "dim": 3, "fingerprint": "f"}
    config, arrays = upgraded({"encoder": known, "calibrator": {"class": "Identity"}}, {"mean": np.zeros(3)})
    assert config["encoder"]["name"] == "mini-1"
    assert list(arrays) == ["0.mean"]


class Lengths:
    """An encoder of the user's own, which 0.1 knew by what it said of itself."""

    name, dim, fingerprint = "lengths", 2, "1"

    def encode(self, texts, *, show_progress_bar=False):
        return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)

    def describe(self):
        return {"kind": "mine", "name": self.name, "dim": self.dim, "fingerprint": self.fingerprint}


@pytest.mark.parametrize("kind", ["mine", None])
def test_an_encoder_of_ones_own_is_given_again(tmp_path, texts, kind):
    calibrator = Standardize().fit(Lengths().encode(texts))
    settings, arrays = calibrator.get_state()
    folder = model_folder.save(tmp_path / "model", {"calibrator": settings}, arrays)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"format_version": 1, "weights_sha256": config.pop("sha256")["model.safetensors"]}
    config["encoder"] = Lengths().describe() | {"kind": kind}
    config.pop("seal")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = BertFlow.from_pretrained(folder, encoder=Lengths())
    np.testing.assert_array_equal(model.encode(texts), calibrator.transform(Lengths().encode(texts)))
    with pytest.raises(ModelFolderError, match="encoder 'lengths' is one of your own: give it with encoder="):
        BertFlow.from_pretrained(folder)


@pytest.mark.parametrize("kind", VIEWS)
def test_its_weights_are_checked_too(tmp_path, kind):
    folder = shutil.copytree(OLD / kind, tmp_path / kind)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged"):
        BertFlow.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("flow", lambda config: config.pop("calibrator")),
        ("flow", lambda config: config["encoder"].pop("dim")),
        ("static", lambda config: config["encoder"].pop("name")),
        ("best", lambda config: config["encoder"].pop("contextual")),
        ("best", lambda config: config["calibrator"]["params"].pop("flow_weight")),
    ],
)
def test_damaged_settings_are_a_sentence(tmp_path, kind, damage):
    folder = shutil.copytree(OLD / kind, tmp_path / kind)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    damage(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"do not make a model \('\w+' is missing\)"):
        BertFlow.from_pretrained(folder)
