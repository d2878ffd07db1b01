"""`bertflow report` as a user meets it."""

import json

import pytest

from bertflow.data import sample_pairs, sample_sentences


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "my corpus.txt"
    path.write_text("\n".join(sample_sentences()[::30]) + "\n", encoding="utf-8")
    return path


def test_report_with_pairs_and_figures(run, corpus, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need pip install 'bertflow[figures]'")
    pairs = tmp_path / "pairs.tsv"
    rows = [f"{pair.sentence1}\t{pair.sentence2}\t{pair.score}" for pair in sample_pairs()[::10]]
    pairs.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    page, folder = tmp_path / "made" / "r.html", tmp_path / "figures"
    code, out, err = run(
        "report", corpus, "--pairs", pairs, "-o", page, "--figures", folder, "-r", "whitening", "-q", "--json"
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["judgement"]["unit"] == "pairs"
    assert result["size"] == page.stat().st_size
    assert {file.suffix for file in folder.iterdir()} == {".png", ".svg"}
    html = page.read_text(encoding="utf-8")
    assert "<h1>my corpus.txt</h1>" in html
    assert "What people’s scores say" in html


def test_report_without_pairs_estimates(run, corpus, tmp_path):
    code, out, err = run("report", corpus, "-o", tmp_path / "r.html", "--title", "Mine", "-q")
    assert (code, err) == (0, "")
    assert "no labels" in out
    assert f"'{corpus}' --encoder mini" in out
    assert str(tmp_path / "r.html") in out
    assert "<h1>Mine</h1>" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("CORPUS", "-o", "r.txt"), "ends in .html"),
        (("nowhere.txt",), "nowhere.txt"),
        (("CORPUS", "--recipe", "magic"), "Unknown recipe"),
        (("CORPUS", "--pairs", "nothing.tsv"), "nothing.tsv"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, corpus, tmp_path, monkeypatch, args, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("report", *(corpus if arg == "CORPUS" else arg for arg in args))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
