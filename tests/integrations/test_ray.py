"""Encoding by Ray Data on a cluster of two cores: the rows of one process, none lost, none doubled."""

import json
import os
import signal
import sys
import warnings

import numpy as np
import pytest

from bertflow import BertFlow, InputError
from bertflow.cli import main
from bertflow.integrations import ray as engine
from bertflow.integrations import ray_inputs

ray = pytest.importorskip("ray", reason="needs pip install 'bertflow[ray]'")
pyarrow = pytest.importorskip("pyarrow", reason="needs pip install 'bertflow[ray]'")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pip install 'bertflow[ray]'")
pytest.importorskip("ray.data", reason="needs pip install 'bertflow[ray]'")


@pytest.fixture(scope="module")
def cluster():
    """One local cluster for all tests: it takes seconds to start."""
    before = {name: os.environ.get(name) for name in ("RAY_USAGE_STATS_ENABLED", "RAY_BACKEND_LOG_LEVEL")}
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_BACKEND_LOG_LEVEL="fatal")
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def texts(tmp_path, sentences):
    """Three text files with what text files have: a byte order mark, Windows line ends, blank lines, no last line end."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbf" + "\n".join(sentences[:150]).encode() + b"\n")
    (folder / "b.txt").write_bytes("\r\n".join([*sentences[150:170], "", *sentences[170:300]]).encode())
    (folder / "c.txt").write_bytes("\n".join([*sentences[300:], "tea\u2028and tea", sentences[0]]).encode() + b"\n")
    return folder


def expected_lines(folder):
    return {
        (str(file), number): line.removesuffix("\r")
        for file in folder.glob("*.txt")
        for number, line in enumerate(file.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n"), 1)
    }


def test_a_killed_worker_costs_no_row_and_doubles_none(cluster, texts, tiny_bert, sentences, tmp_path, monkeypatch):
    # With other neighbours in its batch a text's raw vector moves by 4e-7, with or without Ray. The flow of ``small_model``
    # makes that 1.1e-5; standardising, with deviations of 0.12 and more, at most 3e-6.
    model = BertFlow.fit(sentences, tiny_bert, recipe="sn", device="cpu")
    died = tmp_path / "died"

    class Mortal(engine._Worker):  # local, so that it travels by value
        batches = 0

        def __call__(self, batch):
            self.batches += 1
            if self.batches == 4 and not died.exists():
                died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch)

    monkeypatch.setattr(engine, "_Worker", Mortal)
    monkeypatch.setattr(engine, "_BYTES_A_TASK", 4096)  # so that part of the work was handed on before the kill
    written = engine.embed(texts, tmp_path / "out", model, batch_size=16, concurrency=2, rows_per_file=150)
    assert died.exists()
    wanted = expected_lines(texts)
    assert (written.rows, written.dim) == (len(wanted), model.dim)
    assert written.files == len(list((tmp_path / "out").iterdir())) > 1
    rows = parquet.read_table(tmp_path / "out").to_pylist()
    assert len(rows) == len(wanted)
    assert {(row["source"], row["line"]): row["text"] for row in rows} == wanted
    alone = model.encode([row["text"] for row in rows])
    np.testing.assert_allclose(np.array([row["embedding"] for row in rows]), alone, atol=1e-5)


def test_parquet_in_a_terminal(cluster, small_model, sentences, tmp_path, monkeypatch, capsys):
    small_model.save_pretrained(tmp_path / "model")
    table = pyarrow.table({"id": range(400), "body": sentences, "grade": np.linspace(0, 1, 400)})
    parquet.write_table(table, tmp_path / "in.parquet")
    args = ["ray", "embed", f"file://{tmp_path}/in.parquet", f"file://{tmp_path}/out", "-m", str(tmp_path / "model")]
    monkeypatch.setattr(
        sys, "argv", ["bertflow", *args, "--column", "body", "--normalize", "--concurrency", "1", "--json", "-q"]
    )
    with warnings.catch_warnings(), pytest.raises(SystemExit, match="0"):
        main()
    out, err = capsys.readouterr()
    assert json.loads(out) == {"output": f"file://{tmp_path}/out", "files": 1, "rows": 400, "dim": small_model.dim}
    assert err == ""
    found = parquet.read_table(tmp_path / "out").sort_by("id")
    assert found.drop(["embedding"]).equals(table)
    alone = small_model.encode(sentences, normalize_embeddings=True)
    np.testing.assert_allclose(np.array(found["embedding"].to_pylist()), alone, atol=1e-5)


def test_a_workers_error_is_one_sentence(cluster, small_model, tmp_path):
    (tmp_path / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.txt, after line 0, is not UTF-8") as raised:
        engine.embed(tmp_path / "latin.txt", tmp_path / "out", small_model)
    assert "Traceback" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_done_is_said_before_ray_starts(texts, small_model, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_running", None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("keep me")
    for source, output, model, sentence in [
        (tmp_path / "none.txt", "out", small_model, "holds no .txt and no .parquet file"),
        ([texts, tmp_path / "x.parquet"], "full", small_model, "exists and is not empty; nothing was written"),
        (texts, "out", tmp_path / "nowhere", "it is not a bertflow model"),
        ("odd://texts", "out", small_model, "cannot be reached"),
    ]:
        with pytest.raises((InputError, OSError), match=sentence):
            engine.embed(source, tmp_path / output, model)
    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"holds both \.txt and \.parquet files"):
        engine.embed([texts, tmp_path / "x.parquet"], tmp_path / "out", small_model)


@pytest.mark.parametrize("n", [0, 1, 5, 6, 13])
def test_readers_lose_no_line_between_two_steps(n, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_inputs, "ROWS_AT_ONCE", 6)
    lines = [f"line {i}" for i in range(1, n + 1)]
    (tmp_path / "x.txt").write_text("".join(line + "\n" for line in lines))
    parquet.write_table(pyarrow.table({"text": pyarrow.array(lines, "string")}), tmp_path / "x.parquet")
    for kind, read in ray_inputs.READERS.items():
        tables = list(read(pyarrow.table({"source": [str(tmp_path / f"x{kind}")]})))
        assert all(len(table) <= 6 for table in tables)
        assert [text for table in tables for text in table["text"].to_pylist()] == lines
        if kind == ".txt":
            assert [number for table in tables for number in table["line"].to_pylist()] == list(range(1, n + 1))


def test_a_file_that_is_not_parquet(tmp_path, small_model):
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(InputError, match=r"x\.parquet is not a readable parquet file"):
        engine.embed(tmp_path / "x.parquet", tmp_path / "out", small_model)


@pytest.mark.parametrize(
    ("columns", "asked", "result"),
    [
        (["id", "text"], None, "text"),
        (["text", "sentence"], None, "sentence"),
        (["text", "body"], "body", "body"),
        (["body"], None, "no column sentence or text; it has: body"),
        (["text"], "body", "no column 'body'"),
        (["text", "embedding"], None, "has a column 'embedding' already"),
    ],
)
def test_the_column_of_text(columns, asked, result):
    if result in columns:
        assert ray_inputs.text_column(columns, asked) == result
    else:
        with pytest.raises(InputError, match=result):
            ray_inputs.text_column(columns, asked)


@pytest.mark.parametrize("recipe", ["flow", "static", "best"])
def test_a_model_travels_as_its_files(tiny_bert, small_model, sentences, tmp_path, recipe):
    """A model in memory brings its encoder if it needs one; a folder goes as it is."""
    fitted = small_model if recipe == "flow" else BertFlow.fit(sentences, tiny_bert, recipe=recipe, device="cpu")
    for number, source in enumerate((fitted, fitted.save_pretrained(tmp_path / "model", bundle_encoder=True))):
        packed = engine._packed(source)
        assert any(name.startswith("encoder/") for name in packed) == (recipe != "static" or number == 1)
        for name, content in packed.items():
            path = tmp_path / f"there-{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        there = BertFlow.from_pretrained(tmp_path / f"there-{number}", device="cpu")
        assert there.encoder.fingerprint == fitted.encoder.fingerprint
        np.testing.assert_array_equal(there.encode(sentences[:5]), fitted.encode(sentences[:5]))
