"""`bertflow index` as a user meets it."""

import io
import json
import sys
from functools import partial

import pytest

pytest.importorskip("faiss", reason="needs pip install 'bertflow[faiss]'")


@pytest.fixture
def run(run):
    """Call `bertflow index ARGS`."""
    return partial(run, "index")


@pytest.fixture
def texts(tmp_path, sentences):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*sentences, "", sentences[0]]) + "\n")
    return path


def test_build_then_search(run, texts, tiny_bert, sentences, tmp_path):
    code, out, _ = run("build", texts, tmp_path / "index", "--encoder", tiny_bert, "--dimension", 6)
    assert code == 0
    assert "Indexed 400 different texts (1 repeated, 1 blank) in 6 dimensions" in out
    assert "recall@10" in out
    code, out, err = run("search", tmp_path / "index", sentences[3], "tea", "-k", 2)
    assert (code, err) == (0, "")
    assert sentences[3] in out
    assert out.count("Nearest to") == 2
    assert "ms to encode" in out
    assert "ms to search 400 texts" in out


def test_json_for_both(run, texts, small_model, sentences, tmp_path):
    small_model.save_pretrained(tmp_path / "model")
    code, out, err = run(
        "build", texts, tmp_path / "index", "-m", tmp_path / "model", "--factory", "HNSW16", "--json", "-q"
    )
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["recall"] > 0.5
    assert report["bytes"] == (tmp_path / "index" / "index.faiss").stat().st_size
    code, out, err = run("search", tmp_path / "index", sentences[0], "-k", 3, "--json", "-q")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["queries"]
    assert found["query"] == sentences[0]
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    assert found["hits"][0]["text"] == sentences[0]
    assert found["hits"][0]["copies"] == 2


def test_a_column_of_a_table_and_queries_from_standard_input(run, tiny_bert, sentences, tmp_path, monkeypatch):
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps({"id": i, "body": text}) + "\n" for i, text in enumerate(sentences[:50])))
    code, _, err = run("build", table, tmp_path / "index", "-e", tiny_bert, "-r", "raw", "--column", "body", "-q")
    assert (code, err) == (0, "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{sentences[4]}\n\n{sentences[5]}\n".encode())))
    code, out, _ = run("search", tmp_path / "index", "--queries", "-", "--json", "-q")
    assert code == 0
    assert [query["hits"][0]["text"] for query in json.loads(out)["queries"]] == sentences[4:6]


def test_a_recipe_of_several_parts_and_the_earlier_option(run, texts, tiny_bert, sentences, tmp_path):
    code, _, err = run("build", texts, tmp_path / "index", "-e", tiny_bert, "--recipe", "best", "-q")
    assert (code, err) == (0, "")
    code, out, _ = run("search", tmp_path / "index", sentences[5], "--json", "-q")
    assert code == 0
    assert json.loads(out)["queries"][0]["hits"][0]["text"] == sentences[5]
    code, _, err = run("build", texts, tmp_path / "index", "-e", tiny_bert, "--calibrator", "none")
    assert code == 0
    assert "--calibrator is deprecated; write  --recipe none" in err


def test_what_is_wrong_is_said(run, texts, tiny_bert, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("keep me")
    for args, sentence in [
        (("build", texts, tmp_path / "mine"), "is not a search index; nothing was written"),
        (("build", texts, tmp_path / "i", "-m", "m", "-e", "mini"), "--model brings its own encoder"),
        (("build", texts, tmp_path / "i", "-m", "m", "-r", "best"), "leave out --encoder, --pooling and --recipe"),
        (("build", texts, tmp_path / "i", "-r", "bets"), "did you mean 'best'?"),
        (("build", texts, tmp_path / "i", "-e", tiny_bert, "--factory", "X"), "FAISS makes no index"),
        (("build", tmp_path / "none.txt", tmp_path / "i"), "cannot be read"),
        (("search", tmp_path / "nowhere", "tea"), "it is not a search index"),
        (("search", tmp_path / "nowhere"), "Give queries, each in quotes, or --queries FILE"),
    ]:
        code, out, err = run(*args)
        assert (code, out) == (1, "")
        assert sentence in err
    assert (tmp_path / "mine" / "diary.txt").read_text() == "keep me"
    assert not (tmp_path / "i").exists()
