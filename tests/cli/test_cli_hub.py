"""Sharing a model from the terminal: measured results into the card, and the card to the hub."""

import json
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi, ModelCard

from bertflow import BertFlow, Standardize
from bertflow.data import sample_sentences


@pytest.fixture
def model(mini, tmp_path):
    calibrator = Standardize().fit(mini.encode(sample_sentences()[:60]))
    return BertFlow(mini, calibrator).save_pretrained(tmp_path / "model")


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "tea.tsv"
    rows = ["I drink tea.\tShe drinks tea.\t4", "It rains.\tIt is raining.\t5", "A dog ran.\tBonds fell.\t0"]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n", encoding="utf-8")
    return path


def test_measured_results_reach_the_card_with_one_command(run, model, pairs):
    code, out, err = run("evaluate", "-m", model, "--pairs", pairs, "--save-results", "--json", "-q")
    assert code == 0, err
    value = json.loads(out)["results"]["tea"]["value"]
    (result,) = ModelCard.load(model / "README.md").data.eval_results
    assert (result.dataset_name, result.metric_value, result.dataset_split) == ("tea", value, None)
    (kept,) = BertFlow.from_pretrained(model, device="cpu").results
    assert (kept["value"], kept["pairs"]) == (value, 3)
    code, out, _ = run("evaluate", "-m", model, "--pairs", pairs, "--save-results", "--metric", "pearson")
    assert code == 0
    assert "Written into" in out
    assert len(ModelCard.load(model / "README.md").data.eval_results) == 2


@pytest.mark.parametrize("given", [(), ("-m", "someone/model")])
def test_results_are_saved_into_a_folder_only(run, pairs, given):
    code, out, err = run("evaluate", *given, "--pairs", pairs, "--save-results", "-q")
    assert code == 1
    assert "give its folder with --model" in err
    assert out == ""


def test_push(run, model, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        HfApi, "create_repo", lambda self, repo_id, **options: asked.update(options) or SimpleNamespace(repo_id=repo_id)
    )
    monkeypatch.setattr(
        HfApi,
        "upload_folder",
        lambda self, **options: asked.update(options) or SimpleNamespace(commit_url="address", pr_url=None),
    )
    code, out, err = run("push", model, "me/model", "--private", "--message", "First", "--json")
    assert code == 0, err
    assert json.loads(out) == {"folder": str(model), "repo_id": "me/model", "url": "address"}
    assert (asked["private"], asked["commit_message"], asked["folder_path"]) == (True, "First", model)
    code, out, _ = run("push", model, "me/model")
    assert code == 0
    assert "BertFlow.from_pretrained('me/model')" in out
    assert asked["private"] is None


def test_push_while_offline(run, model):
    code, out, err = run("push", model, "me/model", "-q")
    assert code == 1
    assert "could not be pushed to 'me/model'" in err
    assert "Traceback" not in err
    assert out == ""


def test_push_of_what_is_no_model(run, tmp_path):
    code, _, err = run("push", tmp_path, "me/model")
    assert code == 1
    assert "is not a bertflow model" in err
