"""Shards as a user meets them in a terminal: embed, fit, transform, info; stopped, resumed, shared, refused."""

import io
import json
import os
import signal
import sys

import numpy as np
import pytest

from bertflow import BertFlow, Encoder
from bertflow.storage.shards import Shards


@pytest.fixture
def corpus(tmp_path, sentences):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([*sentences, "", sentences[0]]) + "\n")
    return path


@pytest.fixture
def raw(run, corpus, tiny_bert):
    """Raw shards of the corpus, in float32."""
    folder = corpus.parent / "raw"
    code, _, err = run("embed", corpus, "-e", tiny_bert, "-o", folder, "--shard-rows", 100, "--dtype", "float32", "-q")
    assert code == 0, err
    return folder


def test_embed_fit_transform(run, raw, corpus, sentences, tiny_bert, tmp_path):
    shards = Shards(raw)
    assert len(shards) == len(sentences) + 2  # a blank line has a vector too
    code, out, err = run("fit", raw, "-o", tmp_path / "model", "--recipe", "flow", "--json", "-q", "--device", "cpu")
    assert code == 0, err
    assert json.loads(out)["training"]["fitted_vectors"] == len(shards)
    code, out, err = run("transform", raw, "-m", tmp_path / "model", "-o", tmp_path / "calibrated", "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["missing"] == []
    model = BertFlow.from_pretrained(tmp_path / "model", device="cpu")  # knows its encoder from the manifest
    wanted = model.encode([*sentences, "", sentences[0]])
    np.testing.assert_allclose(Shards(tmp_path / "calibrated").rows(0, len(shards)), wanted, atol=1e-4)
    code, out, err = run(
        "embed", corpus, "-m", tmp_path / "model", "-o", tmp_path / "direct", "--dtype", "float32", "-q"
    )
    assert code == 0, err
    np.testing.assert_allclose(Shards(tmp_path / "direct").rows(0, len(shards)), wanted, atol=1e-4)


@pytest.mark.parametrize("rows", ["all", "300"])
def test_fit_other_recipes_and_bundle(run, raw, tmp_path, rows):
    code, out, err = run(
        "fit", raw, "-o", tmp_path / "model", "--recipe", "whitening-8", "--rows", rows, "--bundle-encoder"
    )
    assert code == 0, err
    assert "bertflow transform" in out
    assert (tmp_path / "model" / "encoder").is_dir()
    model = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    vectors = model.calibrator.transform(Shards(raw).rows(0, 402))
    np.testing.assert_allclose(np.cov(vectors.T, bias=True), np.eye(8), atol=1e-3)


def test_whitening_can_be_fitted_on_text_as_well(run, corpus, tiny_bert, tmp_path):
    code, out, err = run("fit", corpus, "-e", tiny_bert, "-o", tmp_path / "m", "--recipe", "whitening")
    assert code == 0, err
    assert "different sentences" in out
    assert BertFlow.from_pretrained(tmp_path / "m").dim == 16


def test_shards_of_a_recipe_of_two_views(run, corpus, sentences, tiny_bert, tmp_path):
    command = (
        "embed",
        corpus,
        "-e",
        tiny_bert,
        "--raw",
        "--recipe",
        "best",
        "-o",
        tmp_path / "raw",
        "--shard-rows",
        100,
    )
    code, _, err = run(*command, "-q")
    assert code == 0, err
    code, out, err = run("fit", tmp_path / "raw", "-o", tmp_path / "model", "--json", "-q", "--device", "cpu")
    assert code == 0, err
    assert json.loads(out)["recipe"] == "best"
    code, out, err = run("transform", tmp_path / "raw", "-m", tmp_path / "model", "-o", tmp_path / "v", "--json", "-q")
    assert code == 0, err
    model = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    vectors, wanted = Shards(tmp_path / "v").rows(0, 400), model.encode(sentences)
    assert json.loads(out)["dim"] == model.dim
    cosines = np.einsum("nd,nd->n", vectors, wanted) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() > 0.999  # the raw ones were kept in half precision


def test_info_of_shards(run, raw):
    code, out, _ = run("info", raw, "--verify", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["rows"], result["dim"], result["shards"], result["verified"]) == (402, 16, 5, True)
    code, out, _ = run("info", raw)
    assert "encoder fingerprint" in out
    data = bytearray((raw / "00004.npy").read_bytes())
    data[-1] ^= 1
    (raw / "00004.npy").write_bytes(data)
    code, _, err = run("info", raw, "--verify")
    assert code == 1
    assert "shard(s) 4 differ from their checksum" in err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_says_how_to_go_on(run, corpus, tiny_bert, tmp_path, monkeypatch, sign):
    real, calls = Encoder.encode_views, []

    def interrupted(self, sentences, *readings, **options):
        calls.append(len(sentences))
        if len(calls) == 3:
            os.kill(os.getpid(), sign)
        return real(self, sentences, *readings, **options)

    monkeypatch.setattr(Encoder, "encode_views", interrupted)
    command = ("embed", corpus, "-e", tiny_bert, "-o", tmp_path / "v", "--shard-rows", 100)
    code, out, err = run(*command)
    assert code == 130
    assert "Run the same command again to go on." in err
    assert sorted(file.name for file in (tmp_path / "v").glob("*.npy")) == ["00000.npy", "00001.npy"]
    code, out, err = run(*command)
    assert code == 0, err
    assert "200 of 402 rows are there already" in err
    assert "402 vectors of 16 dimensions in 5 shard(s)" in out
    assert calls == [100, 100, 100, 100, 100, 2]


def test_ranks_of_the_environment_share_a_folder(run, corpus, tiny_bert, tmp_path, monkeypatch):
    command = ("embed", corpus, "-e", tiny_bert, "-o", tmp_path / "v", "--shard-rows", 100)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    code, out, err = run(*command)
    assert "Rank 1 of 2 is done; the others have 3 of 5 shards to write." in out
    assert "those of rank(s) 0" in err
    code, out, err = run("fit", tmp_path / "v", "-o", tmp_path / "m")
    assert code == 1
    assert "of 5 shards 3 are missing (0, 2, 4)" in err
    code, out, _ = run(*command, "--rank", 0, "--world-size", 2)
    assert "402 vectors" in out


def test_standard_input_resumes_when_the_same_text_comes(run, corpus, tiny_bert, tmp_path, monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
        code, out, err = run("embed", "-", "-e", tiny_bert, "-o", tmp_path / "v", "--json")
        assert code == 0, err
        assert json.loads(out)["rows"] == 402
    assert "402 of 402 rows are there already" in err


def test_raw_vectors_of_a_model_go_into_a_file_too(run, corpus, small_model, sentences, tmp_path):
    small_model.save_pretrained(tmp_path / "model")
    code, _, err = run("embed", corpus, "-m", tmp_path / "model", "--raw", "-o", tmp_path / "v.npy", "--device", "cpu")
    assert code == 0, err
    np.testing.assert_allclose(np.load(tmp_path / "v.npy")[:-2], small_model.encoder.encode(sentences), atol=1e-5)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("embed", "CORPUS", "-o", "v"), "Give --model for calibrated vectors or --encoder for raw ones"),
        (("embed", "CORPUS", "-e", "TINY", "-m", "MODEL", "-o", "v"), "one of the two"),
        (("embed", "CORPUS", "-m", "MODEL", "-p", "cls", "-o", "v"), "leave out --pooling"),
        (("embed", "CORPUS", "-e", "TINY", "-p", "cls", "-o", "RAW"), "was begun with the encoder"),
        (("embed", "CORPUS", "-e", "TINY", "-o", "v", "--dtype", "int8"), "float16 or float32"),
        (("embed", "CORPUS", "-e", "TINY", "-o", "v", "--shard-rows", "0"), "at least 1"),
        (("embed", "CORPUS", "-e", "TINY", "-o", "v", "--rank", "0"), "together"),
        (("embed", "nowhere.txt", "-e", "TINY", "-o", "v"), "nowhere.txt cannot be read"),
        (("fit", "RAW", "-e", "TINY", "-o", "m"), "leave out --encoder"),
        (("fit", "RAW", "-o", "m", "--rows", "many"), "takes a number from 2 on, or `all`"),
        (("fit", "RAW", "-o", "m", "--recipe", "magic"), "Unknown recipe"),
        (("fit", "RAW", "-o", "m", "--recipe", "best"), "bertflow embed --raw --recipe best"),
        (("embed", "CORPUS", "-e", "TINY", "-o", "v.npy", "--recipe", "best"), "--recipe is for raw shards"),
        (("embed", "CORPUS", "-m", "MODEL", "-o", "v", "--recipe", "best"), "A model has its own pooling and recipe"),
        (("embed", "CORPUS", "-m", "OTHER", "-o", "v"), "--accept-changed-encoder"),
        (("transform", "RAW", "-m", "OTHER", "-o", "v"), "do not belong together"),
        (("transform", "nowhere", "-m", "MODEL", "-o", "v"), "does not exist"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    run, raw, corpus, small_model, tiny_bert, tmp_path, monkeypatch, change_config, args, sentence
):
    monkeypatch.chdir(tmp_path)
    small_model.save_pretrained(tmp_path / "model")
    small_model.save_pretrained(tmp_path / "other")
    change_config(tmp_path / "other", lambda config: config["encoder"].update(fingerprint="of other weights"))
    places = {"CORPUS": corpus, "TINY": tiny_bert, "RAW": raw, "MODEL": tmp_path / "model", "OTHER": tmp_path / "other"}
    code, out, err = run(*(places.get(arg, arg) for arg in args))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
