"""`bertflow export` as a user meets it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bertflow import BertFlow, OnnxCalibrator, Standardize


@pytest.fixture(scope="module")
def affine(tiny_bert, sentences, tmp_path_factory):
    """A model that needs no fit to speak of, and its folder."""
    model = BertFlow.fit(sentences, tiny_bert, "mean", calibrator=Standardize(), device="cpu")
    return model, model.save_pretrained(tmp_path_factory.mktemp("cli") / "model")


def _skip_without_onnx():
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="ONNX needs pip install 'bertflow[onnx]'")


def test_onnx_tells_what_it_wrote_and_what_eight_bits_cost(run, affine, tmp_path, monkeypatch):
    """The export itself is tested elsewhere; here, what is asked of it and what is shown of it."""
    _skip_without_onnx()
    from bertflow.integrations import onnx

    def export(model, folder, **options):
        assert repr(model.calibrator) == repr(affine[0].calibrator)
        assert options == {"int8": True, "tolerance": 1e-3}
        return onnx.OnnxExport(str(folder), "text", 9.4, 2e-6, onnx.Int8Loss(0.9987, 0.9876, 61.5, 61.25))

    monkeypatch.setattr(onnx, "export_onnx", export)
    command = ("export", "onnx", affine[1], tmp_path / "whole", "--int8", "--tolerance", "1e-3")
    code, out, err = run(*command)
    assert code == 0, err
    for part in ("9.4 MB", "2e-06", "0.9987", "0.9876", "61.50 → 61.25", "OnnxModel.from_pretrained", "tokenizers"):
        assert part in out
    code, out, _ = run(*command, "--json", "-q")
    assert json.loads(out)["int8"]["spearman_int8"] == 61.25


def test_onnx_of_the_calibrator_alone_says_nothing_but_that(affine, tmp_path):
    """In a process of its own, since torch's exporter writes past Python's own streams."""
    _skip_without_onnx()
    model, folder = affine
    command = [sys.executable, "-m", "bertflow", "export", "onnx", str(folder), "alone", "--calibrator-only"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Wrote alone (")
    assert "Largest difference from PyTorch" in lines[1]
    assert lines[-1].strip() == "OnnxCalibrator.from_pretrained('alone')"
    x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    runtime = OnnxCalibrator.from_pretrained(tmp_path / "alone")
    np.testing.assert_allclose(runtime.transform(x), model.calibrator.transform(x), atol=1e-4)


@pytest.mark.parametrize("flow", [True, False])
def test_sentence_transformers(run, small_model, affine, sentences, tmp_path, flow):
    library = pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    model, folder = (small_model, small_model.save_pretrained(tmp_path / "m")) if flow else affine
    code, out, err = run("export", "sentence-transformers", folder, tmp_path / "st")
    assert code == 0, err
    assert err == ""
    assert ("trust_remote_code=True" in out) == flow
    loaded = library.SentenceTransformer(str(tmp_path / "st"), trust_remote_code=flow, device="cpu")
    np.testing.assert_allclose(loaded.encode(sentences[:5]), model.encode(sentences[:5]), atol=1e-4)
    code, out, err = run("export", "sentence-transformers", folder, tmp_path / "st", "--json", "-q")
    assert code == 1
    assert "exists; nothing was written" in err
    assert out == ""


@pytest.mark.parametrize("kind", ["onnx", "sentence-transformers"])
def test_what_is_wrong_is_one_sentence(run, affine, tmp_path, kind):
    if kind == "onnx":
        _skip_without_onnx()
    else:
        pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("The only copy.")
    for model, output, sentence in (
        ("no-such-folder", tmp_path / "out", "does not exist"),
        (affine[1], tmp_path / "mine", "nothing was written"),
    ):
        code, out, err = run("export", kind, model, output)
        assert code == 1
        assert sentence in err
        assert out == ""
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "The only copy."
    assert not (tmp_path / "out").exists()
