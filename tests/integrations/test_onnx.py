"""ONNX: what is exported agrees with PyTorch, runs without it, and what is wrong is told in a sentence."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bertflow
from bertflow import (
    POOLINGS,
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    ModelFolderError,
    OnnxCalibrator,
    OnnxModel,
    RemoveTopComponents,
    Standardize,
    TruncationWarning,
    Whitening,
)
from bertflow.data import sample_sentences
from bertflow.integrations.onnx import export_onnx
from bertflow.integrations.onnx_graph import WholeModel, calibrator_module
from bertflow.runtime import graph_export
from bertflow.storage.checksums import sealed

for _package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(_package, reason="ONNX needs pip install 'bertflow[onnx]'")

TEXTS = ["A man is eating.", "", "Someone has lunch on a bench in the park, with his dog.", "A man is eating.", "🙂"]


@pytest.fixture(scope="module")
def model():
    """A flow on the first two layers of the mini encoder: real weights and words, and quick to export."""
    encoder = Encoder("mini", device="cpu")
    encoder.model.encoder.layer = encoder.model.encoder.layer[:2]
    flow = FlowCalibrator(levels=1, depth=2, epochs=1, random_state=0, device="cpu")
    return BertFlow.fit(sample_sentences()[:200], encoder, calibrator=flow)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """The folder that the mini model was exported to; do not change it."""
    folder = tmp_path_factory.mktemp("onnx") / "model"
    result = export_onnx(model, folder)
    assert result.kind == "text"
    assert result.difference < 1e-4
    assert result.int8 is None
    return folder


@pytest.fixture(scope="module")
def runtime(exported):
    return OnnxModel.from_pretrained(exported, threads=1)


@pytest.fixture(scope="module")
def flow_alone(tmp_path_factory):
    """An odd flow and the folder it was exported to."""
    x = np.random.default_rng(0).normal(3, 2, size=(200, 7)).astype(np.float32)
    flow = FlowCalibrator(levels=2, depth=1, coupling="affine", permutation="linear", epochs=2, random_state=0).fit(x)
    folder = tmp_path_factory.mktemp("flow") / "alone"
    return flow, x, folder, export_onnx(flow, folder)


# --- it agrees with PyTorch


def test_text_gives_the_vectors_of_pytorch(model, runtime):
    texts = [*TEXTS, *sample_sentences()[:50]]
    expected = model.encode(texts)
    vectors = runtime.encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    np.testing.assert_allclose(runtime.encode(TEXTS[2]), expected[2], atol=1e-4)
    np.testing.assert_allclose(runtime.encode([TEXTS[2]])[0], expected[2], atol=1e-4)
    np.testing.assert_allclose(
        runtime.encode(texts, normalize_embeddings=True), model.encode(texts, normalize_embeddings=True), atol=1e-4
    )


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_a_vector_does_not_depend_on_its_batch(model, runtime, monkeypatch, budget):
    monkeypatch.setattr(runtime, "token_budget", budget)
    np.testing.assert_allclose(runtime.encode(TEXTS), model.encode(TEXTS), atol=1e-4)


def test_long_texts_are_cut_alike(model, runtime):
    long = ["word " * 500, "and then " * 300]
    with pytest.warns(TruncationWarning, match="2 of 2 texts have more than"):
        vectors = runtime.encode(long)
    with pytest.warns(TruncationWarning):
        expected = model.encode(long)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_similarity_is_that_of_pytorch(model, runtime):
    assert runtime.similarity(*TEXTS[:3:2]) == pytest.approx(model.similarity(*TEXTS[:3:2]), abs=1e-4)
    np.testing.assert_allclose(runtime.similarity(TEXTS, TEXTS[:2]), model.similarity(TEXTS, TEXTS[:2]), atol=1e-4)
    vectors = runtime.encode(TEXTS)
    np.testing.assert_allclose(runtime.similarity(vectors, TEXTS), runtime.similarity(TEXTS, TEXTS), atol=1e-6)
    assert runtime.similarity(TEXTS[0], TEXTS).shape == (1, 5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_in_the_graph(tiny_bert, sentences, pooling):
    model = BertFlow.fit(sentences, tiny_bert, pooling, recipe="sn", device="cpu")
    whole = WholeModel(model, model.encoder.tokenizer.pad_token_id).eval()
    batch = model.encoder.tokenizer(sentences[:9], padding=True, return_tensors="pt")
    with torch.inference_mode():
        vectors = whole(batch["input_ids"], batch["attention_mask"])
    np.testing.assert_allclose(vectors, model.encode(sentences[:9]), atol=1e-5)


@pytest.mark.parametrize(
    "calibrator",
    [
        Identity(),
        Standardize(),
        RemoveTopComponents(2),
        RemoveTopComponents(1, center=False),
        Whitening(),
        Whitening(3),
        *[
            FlowCalibrator(
                levels=2, depth=2, coupling=coupling, permutation=permutation, epochs=1, random_state=0, device="cpu"
            )
            for coupling in ("additive", "affine")
            for permutation in ("reverse", "random", "linear")
        ],
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_calibrator_is_in_the_graph(calibrator, dtype):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 7)) @ rng.normal(size=(7, 7)) + 20).astype(dtype)  # far from zero, where digits get lost
    calibrator.fit(x)
    rows = calibrator_module(calibrator)(torch.from_numpy(x.astype(np.float32)))
    np.testing.assert_allclose(rows.detach(), calibrator.transform(x), atol=1e-4)


@pytest.mark.parametrize(("family", "recipe"), [("gpt2", "best"), ("bert", "static-5"), ("gpt2", "static")])
def test_tables_of_tokens_are_in_the_graph(tiny, sentences, tmp_path, family, recipe):
    """Also where texts have no special tokens around them, so that an empty one has none at all."""
    copied = shutil.copytree(tiny(family), tmp_path / "encoder")
    model = BertFlow.fit(sentences, copied, recipe=recipe, device="cpu")
    texts = ["the cat, red and blue!", "", "?!", "tea", "[SEP] the", *(text[:25] for text in sentences[:40])]
    expected = model.encode(texts)
    if recipe != "best":  # then the encoder itself is not needed any more
        model.save_pretrained(tmp_path / "model")
        shutil.rmtree(copied)
        model = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    assert export_onnx(model, tmp_path / "out").difference < 1e-4
    runtime = OnnxModel.from_pretrained(tmp_path / "out")
    np.testing.assert_allclose(runtime.encode(texts), expected, atol=1e-4 * max(1, np.abs(expected).max()))
    if recipe != "best":
        long = ["the cat sat " * 50]  # a table reads all of a text
        np.testing.assert_allclose(runtime.encode(long), model.encode(long), atol=1e-4)
        with pytest.raises(InputError, match="this model runs none: leave int8 out"):
            export_onnx(model, tmp_path / "out", int8=True)


def test_the_table_stays_as_it_is_in_eight_bits(tiny_bert, sentences, tmp_path):
    model = BertFlow.fit(sentences, tiny_bert, recipe="best", device="cpu")
    assert export_onnx(model, tmp_path / "out", int8=True).difference < 1e-4
    width = model.parts[0].calibrator.dim
    found, expected = OnnxModel.from_pretrained(tmp_path / "out").encode(sentences[:20]), model.encode(sentences[:20])
    np.testing.assert_allclose(found[:, :width], expected[:, :width], atol=1e-4 * np.abs(expected).max())
    assert not np.allclose(found[:, width:], expected[:, width:], atol=1e-4)


def test_a_calibrator_alone(flow_alone):
    flow, x, folder, result = flow_alone
    assert result.kind == "calibrator"
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.onnx"]
    runtime = OnnxCalibrator.from_pretrained(folder)
    assert (runtime.n_features_in_, runtime.n_features_out_) == (7, 7)
    for rows in (x, x[:1], x[:2].tolist(), x.astype(np.float64)):
        np.testing.assert_allclose(runtime.transform(rows), flow.transform(np.asarray(rows, np.float32)), atol=1e-4)
    for wrong in (x[0], x[:, :3], [["a"] * 7], np.full((1, 7), np.nan)):
        with pytest.raises(InputError, match="Vectors"):
            runtime.transform(wrong)


def test_a_sentence_transformer_of_another_family_in_eight_bits(tiny, sentences, tmp_path, capfd):
    """DistilBERT, Dense and Normalize as they stand; int8 stays close, and its loss is told."""
    library = pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    from bertflow.encoders.pretrained import quiet_transformers

    with quiet_transformers(), torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [Transformer(str(tiny("distilbert"))), Pooling(16, "mean"), Dense(16, 9), Normalize()]
    theirs = library.SentenceTransformer(modules=modules, device="cpu")
    model = BertFlow.fit(sentences, theirs, calibrator=Whitening(5))
    result = export_onnx(model, tmp_path / "int8", int8=True)
    out = capfd.readouterr()
    assert out.out == ""
    assert "torch" not in out.err
    runtime = OnnxModel.from_pretrained(tmp_path / "int8")
    assert "int8" in repr(runtime)
    assert result.int8.least_cosine <= result.int8.mean_cosine <= 1
    vectors, expected = runtime.encode(sentences), model.encode(sentences)
    cosines = np.einsum("nd,nd->n", *(v / np.linalg.norm(v, axis=1, keepdims=True) for v in (vectors, expected)))
    assert 0.95 < cosines.mean() < 0.9999999


# --- it needs no torch


def test_it_runs_without_torch(exported, flow_alone, model):
    code = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"torch", "transformers", "sklearn", "scipy", "safetensors", "yaml", "onnx"}}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, {str(Path(bertflow.__file__).parents[1])!r})
from bertflow import OnnxCalibrator, OnnxModel
model = OnnxModel.from_pretrained({str(exported)!r})
print(model.encode({TEXTS!r}).tolist())
OnnxCalibrator.from_pretrained({str(flow_alone[2])!r}).transform([[0.0] * 7])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(json.loads(result.stdout), model.encode(TEXTS), atol=1e-4)


# --- the folder


def test_the_folder_is_whole_and_tells_nothing_of_this_machine(exported):
    assert sorted(file.name for file in exported.iterdir()) == ["config.json", "model.onnx", "tokenizer.json"]
    content = (exported / "model.onnx").read_bytes()
    for path in (Path(bertflow.__file__).parent, Path(torch.__file__).parent):
        assert str(path).encode() not in content
    assert json.loads((exported / "tokenizer.json").read_text(encoding="utf-8"))["truncation"] is None


def test_weights_beyond_two_gigabytes_lie_beside_the_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_export, "ONE_FILE", 0)
    x = np.random.default_rng(0).normal(size=(50, 40)).astype(np.float32)
    whitening = Whitening().fit(x)
    export_onnx(whitening, tmp_path / "a")
    assert (tmp_path / "a" / "model.onnx.data").is_file()
    np.testing.assert_allclose(
        OnnxCalibrator.from_pretrained(tmp_path / "a").transform(x), whitening.transform(x), atol=1e-4
    )
    (tmp_path / "a" / "model.onnx.data").unlink()
    with pytest.raises(ModelFolderError, match=r"model\.onnx\.data is missing"):
        OnnxCalibrator.from_pretrained(tmp_path / "a")


def test_what_differs_from_pytorch_is_not_left_behind(flow_alone, tmp_path):
    shutil.copytree(flow_alone[2], tmp_path / "flow")
    before = (tmp_path / "flow" / "model.onnx").read_bytes()
    calibrator = Standardize().fit(flow_alone[1])
    with pytest.raises(InputError, match=r"differs from PyTorch's by .* nothing was written"):
        export_onnx(calibrator, tmp_path / "flow", tolerance=0)
    assert (tmp_path / "flow" / "model.onnx").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["flow"]


def test_a_foreign_folder_is_left_alone(flow_alone, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelFolderError, match="not an ONNX export of bertflow"):
        export_onnx(flow_alone[0], tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ModelFolderError, match="not an ONNX export of bertflow"):
        export_onnx(flow_alone[0], tmp_path / "file")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["config.json", "file"]


# --- what is wrong is told in a sentence


def _opset_99(folder: Path) -> None:
    import onnx

    graph = onnx.load(folder / "model.onnx")
    graph.opset_import[0].version = 99
    onnx.save(graph, folder / "model.onnx")
    _sign(folder)


def _not_a_graph(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no graph")
    _sign(folder)


def _sign(folder: Path) -> None:
    """Write the checksum of what is there now, so that only its content is wrong."""
    config = json.loads((folder / "config.json").read_text())
    config["sha256"]["model.onnx"] = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(sealed(config)))


def _cut(folder: Path) -> None:
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-100])


def _change(**values):
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return change


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (_opset_99, r"onnxruntime \S+ does not run .*pip install --upgrade onnxruntime"),
        (_not_a_graph, r"onnxruntime \S+ does not run .*model\.onnx"),
        (_cut, "damaged .*its checksum differs"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "was not written by `bertflow export onnx`"),
        (_change(format="bertflow"), "It is a model for PyTorch: export it first"),
        (_change(format_version=3), "pip install --upgrade bertflow"),
        (_change(kind="text"), "holds a whole model: load it with OnnxModel"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_a_folder_that_cannot_be_loaded(flow_alone, tmp_path, harm, sentence):
    folder = tmp_path / "alone"
    shutil.copytree(flow_alone[2], folder)
    harm(folder)
    with pytest.raises(ModelFolderError, match=sentence):
        OnnxCalibrator.from_pretrained(folder)


def test_a_whole_model_is_wanted(flow_alone):
    with pytest.raises(ModelFolderError, match="holds a calibrator alone: load it with OnnxCalibrator"):
        OnnxModel.from_pretrained(flow_alone[2])


def test_texts_and_vectors_that_are_none(runtime):
    for wrong in ([], [1], None, ["a", b"b"]):
        with pytest.raises(InputError):
            runtime.encode(wrong)
    with pytest.raises(InputError, match="shape"):
        runtime.similarity(np.zeros((2, 3)), TEXTS)


def test_what_has_no_onnx_form(flow_alone, model, tmp_path):
    class Words:
        name, dim, fingerprint = "words", 256, "0"

        def encode(self, sentences, **_):
            return np.zeros((len(sentences), 256), np.float32)

    cases = {
        "Words is no transformer": (BertFlow(Words(), model.calibrator), {}),
        "int8 is for a whole model": (flow_alone[0], {"int8": True}),
        "got Encoder": (model.encoder, {}),
    }
    for sentence, (what, options) in cases.items():
        with pytest.raises(InputError, match=sentence):
            export_onnx(what, tmp_path / "out", **options)
    assert not any(tmp_path.iterdir())


def test_an_encoder_that_torch_cannot_express(tiny_bert, sentences, tmp_path):
    class Stubborn(torch.nn.Module):
        def forward(self, input_ids, **_):
            raise RuntimeError("I branch on values.\nMany lines follow.")

    encoder = Encoder(tiny_bert, device="cpu")
    model = BertFlow(encoder, Standardize().fit(encoder.encode(sentences)))
    encoder.model = Stubborn()
    with pytest.raises(InputError, match=r"cannot express .*calibrator alone can be exported"):
        export_onnx(model, tmp_path / "out")
    assert not any(tmp_path.iterdir())
