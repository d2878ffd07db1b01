"""`evaluate` and `compare` from the terminal: own pairs, own search, own clusters, and tables in every format."""

import csv
import io
import json

import pytest

from bertflow import BertFlow
from bertflow.data import sample_sentences


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "model"
    BertFlow.fit(sample_sentences()[:300], encoder="mini", recipe="whitening").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Files of every kind, as options of the command."""
    folder, texts = tmp_path_factory.mktemp("own"), sample_sentences()
    rows = [f"{texts[i]}\t{texts[i] if i % 3 == 0 else texts[i + 1]}\t{5 if i % 3 == 0 else i % 3}" for i in range(90)]
    (folder / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    places = {"queries": range(20), "corpus": range(100, 160)}
    for name, numbers in places.items():
        lines = (json.dumps({"_id": f"{name}{i}", "text": texts[i]}) + "\n" for i in numbers)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    judged = "".join(f"queries{i}\tcorpus{100 + i}\t1\nqueries{i}\tcorpus{120 + i}\t2\n" for i in range(20))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    table = io.StringIO()
    csv.writer(table).writerows([("text", "kind"), *((text, f"k{i % 4}") for i, text in enumerate(texts[:60]))])
    (folder / "clusters.csv").write_text(table.getvalue(), encoding="utf-8")
    search = (
        "--queries",
        folder / "queries.jsonl",
        "--corpus",
        folder / "corpus.jsonl",
        "--qrels",
        folder / "qrels.tsv",
    )
    return {
        "pairs": ("--pairs", folder / "pairs.tsv"),
        "search": search,
        "clusters": ("--texts", folder / "clusters.csv", "--labels", "kind"),
        "folder": folder.name,
    }


def test_evaluate_and_compare_on_own_pairs(run, own):
    code, out, err = run("evaluate", *own["pairs"], "--json", "-q")
    assert code == 0, err
    raw = json.loads(out)["results"]["raw"]["pairs"]
    assert raw["score"]["low"] <= raw["value"] <= raw["score"]["high"]
    code, out, _ = run("evaluate", *own["pairs"], "--fit-on", "nothing", "--metric", "pearson", "--json", "-q")
    assert json.loads(out)["results"]["raw"]["pairs"]["score"]["metric"] == "pearson"
    code, out, err = run("compare", *own["pairs"], "-r", "none,flow", "--json", "-q", "--seeds", "2")
    assert code == 0, err
    result = json.loads(out)
    assert result["results"]["none"]["pairs"]["value"] == raw["value"]
    assert result["results"]["flow"]["pairs"]["deviation"] is not None
    assert 0 < result["results"]["flow"]["pairs"]["p_value"] <= 1


def test_compare_takes_by_default_what_the_encoder_can_do(run, own, tiny_bert):
    code, out, err = run("compare", "--encoder", tiny_bert, *own["pairs"], "--json", "-q")
    assert code == 0, err
    assert list(json.loads(out)["results"]) == ["raw", "whitening", "flow", "static", "best"]


def test_compare_on_own_tasks_of_every_kind(run, own):
    everything = (*own["pairs"], *own["search"], *own["clusters"])
    code, out, err = run("compare", *everything, "-r", "raw,whitening", "--json", "-q")
    assert code == 0, err
    cells = json.loads(out)["results"]["whitening"]
    assert list(cells) == ["pairs", own["folder"], "clusters"]
    assert [cell["score"]["metric"] for cell in cells.values()] == ["spearman", "ndcg@10", "v-measure"]
    assert cells[own["folder"]]["score"]["queries"] == 20
    assert set(cells[own["folder"]]["score"]["also"]) == {"mrr@10", "recall@100"}
    assert all(cell["score"]["low"] <= cell["score"]["high"] for cell in cells.values())
    code, out, err = run("compare", *everything, "-r", "raw,whitening", "-q")
    assert code == 0, err
    for text in ("whitening", "clusters", "average"):
        assert text in out


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("markdown", "| recipe | pairs |"),
        ("latex", r"\begin{tabular}{lr}"),
        ("csv", "recipe,task,metric,value,sd,low,high,p_value"),
        ("json", "{"),
    ],
)
def test_formats_on_standard_output_and_in_a_file(run, own, tmp_path, form, start):
    arguments = ("compare", *own["pairs"], "-r", "raw,sn", "-q")
    code, out, err = run(*arguments, "--format", form)
    assert code == 0, err
    assert out.startswith(start)
    suffix = {"markdown": "md", "latex": "tex"}.get(form, form)
    code, _, err = run(*arguments, "-o", tmp_path / f"table.{suffix}")
    assert code == 0, err
    assert (tmp_path / f"table.{suffix}").read_text(encoding="utf-8") == out


def test_evaluate_a_saved_model(run, model_folder, own):
    code, out, err = run("evaluate", "--model", model_folder, *own["pairs"], *own["search"], "--json", "-q")
    assert code == 0, err
    results = json.loads(out)["results"]
    assert 0 < results["pairs"]["value"] <= 100
    assert results[own["folder"]]["queries"] == 20
    code, out, err = run("evaluate", "--model", model_folder, *own["pairs"], "-q", "--save-results")
    assert code == 0, err
    (kept,) = BertFlow.from_pretrained(model_folder).results
    assert (kept["dataset"], kept["split"], kept["value"]) == ("pairs", None, results["pairs"]["value"])


def test_evaluate_shows_what_was_judged(run, own):
    code, out, err = run("evaluate", *own["search"], *own["clusters"], "-r", "whitening", "-q")
    assert code == 0, err
    for text in ("20 queries", "60 texts", "ndcg@10", "mrr@10", "v-measure", "Average"):
        assert text in out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--tasks", "STS99", "--data", "."), "no task 'STS99'"),
        (("PAIRS", "--recipe", "magic"), "Unknown recipe 'magic'"),
        (("PAIRS", "--recipe", "flow", "--fit-on", "nothing"), "only the recipe raw"),
        (("PAIRS", "--metric", "kendall"), "no metric 'kendall'"),
        (("PAIRS", "--setting", "median"), "no setting 'median'"),
        (("PAIRS", "--format", "html"), "no format 'html'"),
        (("PAIRS", "--format", "csv", "--json"), "One format"),
        (("PAIRS", "-o", "table.xlsx"), "ends in none of"),
        (("--queries", "q.jsonl"), "--corpus is missing"),
        (("PAIRS", "--save-results"), "writes into a saved model"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_any_model_is_loaded(run, own, monkeypatch, args, sentence):
    def load(*_, **__):
        pytest.fail("an encoder was loaded")

    monkeypatch.setattr("bertflow.encoders.choosing.as_encoder", load)
    code, out, err = run("evaluate", *(part for arg in args for part in (own["pairs"] if arg == "PAIRS" else (arg,))))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
