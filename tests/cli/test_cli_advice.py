"""`bertflow advise` as a user meets it."""

import json

import pytest

from bertflow.data import sample_pairs, sample_sentences

QUICK = ("--poolings", "mean,embedding-last-avg", "--calibrators", "natsv-1,whitening", "--device", "cpu")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sample_sentences()[::40]) + "\n", encoding="utf-8")
    return path


def test_a_table_a_sentence_and_the_line_to_run(run, corpus):
    code, out, err = run("advise", corpus, *QUICK)
    assert (code, err) == (0, "")  # the fits that it weighs remark nothing
    assert "embedding-last-avg" in out
    assert "expected gain" in out
    assert f"{corpus} --encoder mini --pooling" in out.replace("\n", "")
    assert "'mini', pooling=" in out


def test_json_is_the_same_twice(run, corpus):
    code, out, err = run("advise", corpus, *QUICK, "--json", "--quiet")
    assert (code, err) == (0, "")
    advice = json.loads(out)
    assert advice["basis"] == "splices"
    assert len(advice["options"]) == 6
    assert advice["gain"]["low"] <= advice["gain"]["value"] <= advice["gain"]["high"]
    assert str(corpus) in advice["command"]
    assert run("advise", corpus, *QUICK, "--json", "--quiet")[1] == out


def test_labelled_pairs_decide(run, corpus, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    rows = [f"{pair.sentence1}\t{pair.sentence2}\t{pair.score}" for pair in sample_pairs()[::10]]
    pairs.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    code, out, _ = run("advise", corpus, "--pairs", pairs, *QUICK, "--json", "--quiet")
    assert code == 0
    advice = json.loads(out)
    assert advice["basis"] == "pairs"
    assert "labelled pairs" in advice["reasons"][0]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--calibrators", "glow"), "Unknown calibrator 'glow'"),
        (("--poolings", "median"), "Unknown pooling 'median'"),
        (("--sample", "3"), "sample is 3"),
    ],
)
def test_unknown_names_are_said(run, corpus, args, words):
    code, _, err = run("advise", corpus, *args)
    assert code == 1
    assert words in err


def test_too_few_sentences(run, tmp_path):
    (tmp_path / "few.txt").write_text("One.\nTwo.\n", encoding="utf-8")
    code, _, err = run("advise", tmp_path / "few.txt")
    assert code == 1
    assert "at least 50 are needed" in err
