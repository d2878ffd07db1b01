"""`bertflow advise` as a user meets it."""

import json

import pytest

from bertflow.data import sample_pairs, sample_sentences

QUICK = ("--recipes", "natsv-1,whitening-half", "--device", "cpu")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sample_sentences()[::40]) + "\n", encoding="utf-8")
    return path


def test_a_table_a_paragraph_and_the_line_to_run(run, corpus):
    code, out, err = run("advise", corpus, *QUICK, "--for", "similarity")
    assert (code, err) == (0, "")  # the fits that it weighs remark nothing
    assert "expected gain" in out
    assert "no labels" in out
    assert f"{corpus} --encoder mini" in out.replace("\n", "")


def test_json_is_the_same_twice(run, corpus):
    code, out, err = run("advise", corpus, *QUICK, "--json", "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["unit"] is None
    assert {one["recipe"] for one in found["ranking"]} == {"raw", "natsv-1", "whitening-half"}
    assert found["gain"]["low"] <= found["gain"]["value"] <= found["gain"]["high"]
    assert str(corpus) in found["command"]
    assert run("advise", corpus, *QUICK, "--json", "--quiet")[1] == out


def test_labelled_pairs_decide_and_more_are_chosen(run, corpus, tmp_path):
    pairs, more = tmp_path / "pairs.tsv", tmp_path / "to-label.tsv"
    rows = [f"{pair.sentence1}\t{pair.sentence2}\t{pair.score}" for pair in sample_pairs()[::10]]
    pairs.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    options = (*QUICK, "--sample-pairs", 20, "--output", more, "--json", "--quiet")
    code, out, _ = run("advise", corpus, "--pairs", pairs, *options)
    assert code == 0
    found = json.loads(out)
    assert (found["unit"], found["labels"]) == ("pairs", len(rows))
    assert len(more.read_text(encoding="utf-8").splitlines()) == 21


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--recipes", "glow"), "Unknown recipe 'glow'"),
        (("--for", "fun"), "no purpose 'fun'"),
        (("--sample", "3"), "sample is 3"),
        (("--sample-pairs", "3"), "need both"),
        (("--queries", "q.jsonl"), "--corpus"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, corpus, args, words):
    code, _, err = run("advise", corpus, *args)
    assert code == 1
    assert words in err


def test_too_few_sentences(run, tmp_path):
    (tmp_path / "few.txt").write_text("One.\nTwo.\n", encoding="utf-8")
    code, out, _ = run("advise", tmp_path / "few.txt")
    assert code == 0
    assert "Too little text" in out
