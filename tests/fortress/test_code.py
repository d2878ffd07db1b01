"""No code of a stranger runs, even where standard input says yes to every question."""

import builtins
import io
import sys

import pytest

from bertflow import BertFlow, BertflowError, Encoder, Standardize
from bertflow.encoders.pretrained import load_sentence_transformer

from .strangers import hostile_sentence_transformer, hostile_transformer, vouch_for


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Standard input that says yes for ever; afterwards nothing may have been run or asked."""
    asked = []

    def answer(prompt=""):
        asked.append(prompt)
        return "y"

    monkeypatch.setattr(builtins, "input", answer)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 100)))
    yield tmp_path / "was run"
    assert not (tmp_path / "was run").exists()
    assert not asked


@pytest.mark.parametrize("unknown", [True, False])
def test_an_encoder_s_code_is_not_run(tmp_path, tiny_bert, marker, unknown):
    folder = hostile_transformer(tmp_path / "evil", tiny_bert, marker, unknown=unknown)
    if not unknown:  # transformers knows the type, and takes its own class
        Encoder(folder, device="cpu")
        return
    with pytest.raises(BertflowError, match="trust_remote_code=True, on the command line --trust-remote-code"):
        Encoder(folder, device="cpu")


@pytest.mark.parametrize("inside", [True, False])
def test_a_sentence_transformer_s_code_is_not_run(tmp_path, tiny_bert, marker, inside):
    pytest.importorskip("sentence_transformers")
    folder = hostile_sentence_transformer(tmp_path / "evil", tiny_bert, marker, inside=inside)
    with pytest.raises(BertflowError, match="--trust-remote-code"):
        load_sentence_transformer(str(folder), device="cpu")


def test_a_bundled_encoder_s_code_is_not_run(tmp_path, tiny_bert, sentences, marker):
    model = BertFlow.fit(sentences[:50], tiny_bert, calibrator=Standardize(), device="cpu")
    model.save_pretrained(tmp_path / "model", bundle_encoder=True)
    hostile_transformer(tmp_path / "model" / "encoder", tiny_bert, marker)
    vouch_for(tmp_path / "model")
    with pytest.raises(BertflowError, match="--trust-remote-code"):
        BertFlow.from_pretrained(tmp_path / "model", device="cpu")


def test_tuning_on_nli_runs_no_code(tmp_path, tiny_bert, marker):
    for package in ("sentence_transformers", "accelerate", "datasets"):
        pytest.importorskip(package)
    from bertflow.paper.nli_tuning import finetune_nli

    rows = tmp_path / "nli.tsv"
    rows.write_text("sentence1\tsentence2\tlabel\n" + "a cat\ta dog\tneutral\n" * 8)
    folder = hostile_transformer(tmp_path / "evil", tiny_bert, marker)
    with pytest.raises(BertflowError, match="--trust-remote-code"):
        finetune_nli(tmp_path / "tuned", [rows], base=folder)
