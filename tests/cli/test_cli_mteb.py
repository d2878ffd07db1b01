"""`bertflow mteb` as a user meets it, on made-up pairs and a tiny model."""

import json
from functools import partial

import numpy as np
import pytest

pytest.importorskip("mteb", reason="needs pip install 'bertflow[mteb]'")


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    """Call `bertflow mteb ARGS`."""
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "bertflow"))
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    return partial(run, "mteb")


@pytest.fixture
def pairs(tmp_path, sentences):
    rng = np.random.default_rng(0)
    rows = [f"{a}\t{b}\t{rng.integers(0, 6)}" for a, b in zip(sentences[:150], sentences[150:300], strict=True)]
    path = tmp_path / "my-pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    return path


def test_several_recipes_on_an_encoder(run, pairs, tiny_bert, tmp_path):
    args = ("--pairs", pairs, "--encoder", tiny_bert, "-r", "raw", "-r", "whitening,best", "--output", tmp_path / "out")
    code, out, err = run(*args, "--json", "--quiet")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert list(result["results"]) == ["raw", "whitening", "best"]
    scores = [row[0]["score"] for row in result["results"].values()]
    assert len(set(scores)) == 3
    assert all(row[0]["task"] == "my-pairs" for row in result["results"].values())
    assert len(list((tmp_path / "out" / "results").glob("*/*/my-pairs.json"))) == 3
    code, out, err = run(*args)
    assert code == 0
    assert "Warning" not in err
    assert all(f"{100 * score:.2f}" in out for score in scores)
    assert "cosine_spearman; local data: my-pairs" in out


def test_saved_model(run, pairs, small_model, tmp_path):
    small_model.save_pretrained(tmp_path / "model")
    code, out, err = run("--pairs", pairs, "--model", tmp_path / "model", "--json", "-q")
    assert (code, err) == (0, "")
    ((score,),) = json.loads(out)["results"].values()
    assert score["model"] == "bertflow/bert-flow"
    assert (tmp_path / "mteb" / "results" / "bertflow__bert-flow" / score["revision"] / "my-pairs.json").is_file()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--model", "m", "--recipe", "flow"], "--model brings its own encoder"),
        (["--recipe", "raw", "--calibrator", "none"], "--recipe and --calibrator say the same thing"),
        (["--tasks", "BIOSSES"], "BIOSSES could not be fetched from the Hugging Face hub"),
        (["--tasks", "STS12", "--data", "nowhere"], "There is no folder 'nowhere'"),
        (["--tasks", "QNLI"], "MTEB has no task 'QNLI'"),
        (["--tasks", ","], "No task was named"),
    ],
)
def test_what_is_wrong_is_said(run, args, sentence):
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert sentence in err


def test_labels_and_unknown_recipes_are_refused(run, pairs, tmp_path, tiny_bert):
    labels = tmp_path / "labels.tsv"
    labels.write_text("sentence1\tsentence2\tlabel\na cat\ta dog\t0\ntea\ttea\t1\n")
    code, _, err = run("--pairs", labels)
    assert code == 1
    assert "graded scores" in err
    code, _, err = run("--pairs", pairs, "-e", tiny_bert, "-r", "bleach")
    assert code == 1
    assert "Unknown recipe 'bleach'" in err
    code, _, err = run("--pairs", pairs, "-e", tiny_bert, "-c", "none")
    assert code == 0
    assert "--calibrator is deprecated; write  --recipe none" in err
