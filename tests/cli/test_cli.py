"""The command line as a user meets it: exit codes, tables, JSON, and sentences for what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bertflow import BertFlow, recipes
from bertflow.data import sample_sentences


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "model"
    BertFlow.fit(sample_sentences()[:300], encoder="mini", recipe="flow").save_pretrained(folder)
    return folder


def test_help_teaches_and_needs_no_torch():
    code = "import sys; sys.argv = ['bertflow', '--help']\nfrom bertflow.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("False")
    for command in (
        "demo",
        "fit",
        "recipes",
        "transform",
        "embed",
        "similarity",
        "info",
        "evaluate",
        "compare",
        "reproduce",
    ):
        assert command in result.stdout


def test_fit_from_text_then_info(run, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(sample_sentences()[:200]) + "\n\n", encoding="utf-8")
    code, out, _ = run("fit", tmp_path / "corpus.txt", "-o", tmp_path / "model", "--json", "-q")
    assert code == 0
    assert json.loads(out)["training"]["sentences"] == 200
    assert json.loads(out)["recipe"] == "best"
    code, out, _ = run("info", tmp_path / "model")
    assert code == 0
    assert "first-last-avg" in out
    assert "TokenTable" in out
    code, out, _ = run("info", tmp_path / "model", "--json")
    assert json.loads(out)["encoder"]["name"] == "mini-1"
    assert [part["view"]["class"] for part in json.loads(out)["parts"]] == ["TokenTable", "Pooled"]


@pytest.mark.parametrize(
    ("recipe", "dim"), [("whitening-8", 8), ("sn@cls", 256), ("static-4", 4), ("none", 256), ("whitening-half", 256)]
)
def test_any_recipe_is_fitted_and_embeds(run, tmp_path, recipe, dim):
    (tmp_path / "c.txt").write_text("\n".join(sample_sentences()[:60]), encoding="utf-8")
    code, out, err = run("fit", tmp_path / "c.txt", "--recipe", recipe, "-o", tmp_path / "m", "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["recipe"] == recipe.replace("none", "raw")
    code, out, err = run("embed", tmp_path / "c.txt", "-m", tmp_path / "m", "-o", tmp_path / "v.npy", "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["dim"] == dim


@pytest.mark.parametrize(
    ("option", "recipe"),
    [
        (("--calibrator", "whitening"), "whitening"),
        (("--calibrator", "none"), "raw"),
        (("--preset", "static"), "static"),
        (("--calibrator", "flow", "--preset", "paper"), "flow-paper"),
    ],
)
def test_options_of_old_still_fit_and_say_what_to_write(run, tmp_path, option, recipe):
    (tmp_path / "c.txt").write_text("\n".join(sample_sentences()[:40]), encoding="utf-8")
    code, out, err = run("fit", tmp_path / "c.txt", "-o", tmp_path / "m", "--json", *option)
    assert code == 0, err
    assert json.loads(out)["recipe"] == recipe
    assert f"FutureWarning: {option[-2]} is deprecated; write  --recipe {recipe.replace('raw', 'none')}\n" in err


def test_every_recipe_is_told(run):
    code, out, _ = run("recipes", "--json")
    assert code == 0
    assert json.loads(out) == recipes()
    code, out, _ = run("recipes")
    assert "whitening-half" in out


@pytest.mark.parametrize(("precision", "dtype", "width"), [("float16", "float16", 256), ("ubinary", "uint8", 32)])
def test_embed_in_fewer_bits(run, model_folder, tmp_path, precision, dtype, width):
    (tmp_path / "in.txt").write_text("First line.\nSecond line.\n", encoding="utf-8")
    code, _, err = run(
        "embed", tmp_path / "in.txt", "-m", model_folder, "-o", tmp_path / "v.npy", "--precision", precision
    )
    assert code == 0, err
    vectors = np.load(tmp_path / "v.npy")
    assert (str(vectors.dtype), vectors.shape) == (dtype, (2, width))


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_fit_from_a_column(run, tmp_path, kind):
    rows, path = sample_sentences()[:80], tmp_path / f"corpus.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"id": i, "body": text}) + "\n" for i, text in enumerate(rows)))
    elif kind == "csv":
        path.write_text(
            "id,body\n" + "".join(f'{i},"{text.replace(chr(34), chr(34) * 2)}"\n' for i, text in enumerate(rows))
        )
    else:
        pytest.importorskip("pyarrow", reason="parquet needs pip install 'bertflow[parquet]'")
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"id": range(80), "body": rows}), path)
    code, out, err = run("fit", path, "--column", "body", "-o", tmp_path / "m", "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["training"]["sentences"] == 80
    code, _, err = run("fit", path, "-o", tmp_path / "m2", "-q")
    assert code == 1
    assert "body" in err, "the columns that exist are named"


def test_fit_from_standard_input(model_folder, tmp_path):
    text = "\n".join(sample_sentences()[:60])
    command = [sys.executable, "-m", "bertflow", "fit", "-", "-o", str(tmp_path / "m"), "--json", "--quiet"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["training"]["sentences"] == 60
    assert result.stderr == ""


def test_embed_keeps_every_row(run, model_folder, tmp_path):
    texts = ["First line.", "", "Third line."]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    expected = BertFlow.from_pretrained(model_folder).encode(texts)
    for name in ("v.npy", "v.jsonl", "v.parquet"):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow", reason="parquet needs pip install 'bertflow[parquet]'")
        code, out, err = run("embed", tmp_path / "in.txt", "-m", model_folder, "-o", tmp_path / name, "--json")
        assert code == 0, err
        assert json.loads(out)["rows"] == 3
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == texts
    np.testing.assert_allclose([line["embedding"] for line in lines], expected, atol=1e-5)
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "v.parquet").to_pydict()
    assert table["text"] == texts
    np.testing.assert_allclose(table["embedding"], expected, atol=1e-5)


def test_embed_refuses_an_unknown_ending_before_any_work(run, tmp_path):
    code, out, err = run("embed", "nowhere.txt", "-m", "nothing", "-o", tmp_path / "v.xlsx")
    assert code == 1
    assert ".npy, .npz, .safetensors, .parquet, .jsonl" in err
    assert out == ""


def test_similarity_of_two_sentences_and_of_a_file(run, model_folder, tmp_path):
    code, out, _ = run("similarity", "-m", model_folder, "A man eats.", "A man eats.")
    assert code == 0
    assert float(out) == pytest.approx(1, abs=1e-4)
    (tmp_path / "p.tsv").write_text('sentence1\tsentence2\nA "quoted" man.\tA dog.\nRain.\tRain.\n')
    code, out, _ = run("similarity", "-m", model_folder, "--pairs", tmp_path / "p.tsv", "--json")
    assert code == 0
    assert [row["sentence1"] for row in json.loads(out)] == ['A "quoted" man.', "Rain."]
    assert json.loads(out)[1]["cosine"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("similarity", "-m", "MODEL", "only one"), "Two sentences were wanted"),
        (("similarity", "-m", "no-such-folder", "a", "b"), "does not exist"),
        (("info", "no-such-folder"), "does not exist"),
        (("fit", "no-such-file.txt", "-o", "m"), "no-such-file.txt"),
        (("fit", "SENTENCES", "-o", "m", "--pooling", "sum"), "Unknown pooling"),
        (("fit", "SENTENCES", "-o", "m", "--preset", "fast"), "Unknown preset"),
        (
            ("fit", "SENTENCES", "-o", "m", "--recipe", "whitning"),
            "Unknown recipe 'whitning' (did you mean 'whitening'?)",
        ),
        (("fit", "SENTENCES", "-o", "m", "--recipe", "best@cls"), "brings its own pooling; leave out 'cls'"),
        (("fit", "SENTENCES", "-o", "m", "--recipe", "sn@sum"), "Unknown pooling 'sum'"),
        (
            ("fit", "SENTENCES", "-o", "m", "-r", "sn", "--calibrator", "sn"),
            "--recipe and --calibrator say the same thing",
        ),
        (("fit", "SENTENCES", "-o", "m", "-e", "mini-2"), "ships 'mini-1', not 'mini-2'"),
        (("embed", "SENTENCES", "-m", "MODEL", "-o", "v.npy", "--precision", "int4"), "Unknown precision 'int4'"),
        (("fit", "SENTENCES", "-o", "m", "--device", "tpu"), "not a device"),
        (("reproduce", "table7"), "no 'table7'"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, model_folder, tmp_path, monkeypatch, args, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.txt").write_text("\n".join(sample_sentences()[:20]))
    places = {"MODEL": model_folder, "SENTENCES": tmp_path / "s.txt"}
    code, out, err = run(*(places.get(arg, arg) for arg in args))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""


def test_demo_shows_before_and_after(run, tmp_path):
    code, out, err = run("demo", "-o", tmp_path / "demo", "--json", "-q")
    assert code == 0, err
    result = json.loads(out)
    assert result["random_cosine"]["raw"] > 0.5 > abs(result["random_cosine"]["flow"])
    assert result["search"]["best"]["first"] > result["search"]["flow"]["first"] > result["search"]["raw"]["first"]
    assert [row["name"] for row in result["spearman"]][:2] == ["all", "ordinary"]
    assert len(result["nearest"]) == 3
    assert BertFlow.from_pretrained(result["saved"]).encode("One sentence.").ndim == 1


def test_fit_from_a_model_adapts_it(run, model_folder, tmp_path):
    (tmp_path / "own.txt").write_text("\n".join(sample_sentences()[300:400]), encoding="utf-8")
    for base, earlier in ((model_folder, 300), ("mini-flow", None)):
        code, out, _ = run("fit", tmp_path / "own.txt", "--from", base, "-o", tmp_path / "adapted", "--json", "-q")
        training = json.loads(out)["training"]
        assert code == 0
        assert training["sentences"] == 100
        assert training["earlier_sentences"] == (earlier or BertFlow.from_pretrained(base).training["sentences"])
        code, out, _ = run("similarity", "-m", tmp_path / "adapted", "It rains.", "Rain falls.")
        assert code == 0
        assert -1 <= float(out) <= 1


def test_fit_from_a_model_says_what_it_did(run, model_folder, tmp_path):
    (tmp_path / "own.txt").write_text("\n".join(sample_sentences()[300:400]), encoding="utf-8")
    code, out, _ = run("fit", tmp_path / "own.txt", "--from", model_folder, "-o", tmp_path / "adapted", "-q")
    assert code == 0
    assert "100 different sentences, after 300 earlier ones" in " ".join(out.split())
    (tmp_path / "own.txt").write_text("\n".join(sample_sentences()[300:305]), encoding="utf-8")
    code, _, err = run("fit", tmp_path / "own.txt", "--from", model_folder, "-o", tmp_path / "adapted", "-q")
    assert code == 1
    assert "10 at least" in err


@pytest.mark.parametrize("option", [("--encoder", "mini"), ("--pooling", "cls"), ("--recipe", "whitening")])
def test_fit_from_a_model_takes_no_other_encoder_or_calibrator(run, model_folder, tmp_path, option):
    (tmp_path / "own.txt").write_text("\n".join(sample_sentences()[:50]), encoding="utf-8")
    code, _, err = run("fit", tmp_path / "own.txt", "--from", model_folder, "-o", tmp_path / "m", *option)
    assert code == 1
    assert f"leave out {option[0]}" in " ".join(err.split())


def test_the_flow_that_ships_is_a_model_for_every_command(run, tmp_path):
    (tmp_path / "own.txt").write_text("Rain falls.\nThe cat sleeps.\n", encoding="utf-8")
    assert run("embed", tmp_path / "own.txt", "-m", "mini-flow", "-o", tmp_path / "v.npy", "-q")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (2, 256)
    code, out, _ = run("info", "mini-flow", "--json")
    assert code == 0
    assert json.loads(out)["encoder"]["name"] == "mini-1"
