"""`bertflow analyze` as a user meets it."""

import json

import pytest

from bertflow import BertFlow
from bertflow.data import sample_sentences

GARBAGE = "00110101 11010 0x4f 0x5a"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    texts = sample_sentences()[::30]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join([*texts[:100], "", GARBAGE, *texts[100:]]) + "\n", encoding="utf-8")
    return path


def test_analyze_shows_tables_and_how_to_read_them(run, corpus):
    code, out, err = run("analyze", corpus, "--recipe", "flow", "--quiet")
    assert code == 0, err
    assert err == ""
    for part in (
        "Isotropy",
        "Rogue dimensions",
        "Normality",
        "frequency rank",
        "Holes",
        "least likely",
        "standard error",
    ):
        assert part in out
    assert "give pairs" in out


def test_analyze_for_machines_with_pairs_and_counts(run, corpus, tmp_path):
    pytest.importorskip("rapidfuzz", reason="edit distance needs pip install 'bertflow[evaluation]'")
    texts = sample_sentences()[::30]
    rows = [f"{texts[i]}\t{texts[i] if i % 3 == 0 else texts[i + 1]}\t{5 if i % 3 == 0 else i % 3}" for i in range(40)]
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "counts.txt").write_text("the 900\nof 500\nand 400\na 300\nin 250\nto 200\n")
    options = (
        "--pairs",
        tmp_path / "pairs.tsv",
        "--counts",
        tmp_path / "counts.txt",
        "-r",
        "whitening",
        "--pooling",
        "mean",
    )
    code, out, err = run("analyze", corpus, *options, "--json", "-q")
    assert code == 0, err
    found = json.loads(out)
    assert found["pairs"]["pairs"] == 40
    assert found["pairs"]["paraphrases"] == 14
    assert found["words"]["words"] == [6, 0, 0, 0]
    assert found["settings"]["counts"] == "counts.txt"
    assert found["settings"]["pooling"] == "mean"
    assert found["density"] is None
    assert found["isotropy"]["after"]["mean_cosine"] < found["isotropy"]["before"]["mean_cosine"]


def test_a_saved_model_is_used_as_it_is(run, corpus, tmp_path):
    folder = tmp_path / "model"
    BertFlow.fit(sample_sentences()[::30], encoder="mini", recipe="flow").save_pretrained(folder)
    code, out, err = run("analyze", corpus, "--model", folder, "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["least_likely"][0]["text"] == GARBAGE


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("analyze", "no-such-file.txt"), "no-such-file.txt"),
        (("analyze", "CORPUS", "-r", "magic"), "Unknown recipe"),
        (("analyze", "CORPUS", "--pooling", "sum"), "Unknown pooling"),
        (("analyze", "CORPUS", "--counts", "absent.txt"), "absent.txt"),
        (("analyze", "CORPUS", "--pairs", "absent.tsv"), "absent.tsv"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, corpus, tmp_path, monkeypatch, args, sentence):
    monkeypatch.chdir(tmp_path)
    places = {"CORPUS": corpus}
    code, out, err = run(*(places.get(arg, arg) for arg in args))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
