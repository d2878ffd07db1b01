"""`bertflow outliers`, `drift`, `duplicates` and `cluster` as a user meets them."""

import csv
import json

import pytest

from bertflow import BertFlow
from bertflow.data import sample_sentences

GARBAGE = "00110101 11010 0x4f 0x5a"


@pytest.fixture(scope="module")
def texts():
    return sample_sentences()[::10][:400]


@pytest.fixture(scope="module")
def model(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("models") / "model"
    BertFlow.fit(texts, encoder="mini", recipe="whitening-half", device="cpu").save_pretrained(folder)
    return folder


@pytest.fixture
def write(tmp_path):
    def to(name, lines):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return to


def test_outliers_are_named_by_their_line(run, write, texts, model):
    corpus = write("corpus.txt", [*texts[:100], "", GARBAGE, *texts[100:]])
    code, out, err = run("outliers", corpus, "-m", model, "--top", 500, "--json", "-q")
    assert code == 0, err
    found = json.loads(out)
    first = next(entry for entry in found["entries"] if entry["text"] == GARBAGE)
    assert first["line"] == 102, "blank lines count, as in an editor"
    assert found["texts"] == found["corpus"] == 401
    code, out, err = run("outliers", corpus, "-m", model, "--top", 500, "-q")
    assert code == 0, err
    assert GARBAGE.split()[0] in out
    assert "102" in out


def test_outliers_against_a_corpus(run, write, texts, model):
    corpus, new = write("corpus.txt", texts[:300]), write("new.txt", [*texts[:5], GARBAGE])
    code, out, err = run("outliers", new, "--against", corpus, "-m", model, "--json", "-q")
    assert code == 0, err
    found = json.loads(out)
    assert (found["texts"], found["corpus"]) == (6, 300)
    assert found["entries"][0]["text"] == GARBAGE
    by_text = {entry["text"]: entry for entry in found["entries"]}
    assert by_text[texts[3]]["nearest_line"] == 4
    assert not by_text[texts[3]]["unrelated"]


def test_duplicates_are_written_apart(run, write, texts, model, tmp_path):
    lines = [*texts[:200], texts[7] + "!", texts[9], *texts[200:]]
    corpus, folder = write("corpus.txt", lines), tmp_path / "out"
    options = ("-m", model, "--expect-false", 0.01, "-o", folder, "-q")
    code, out, err = run("duplicates", corpus, *options, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {(one["line"], one["of_line"]) for one in found["removed"]} >= {(201, 8), (202, 10)}
    kept = (folder / "kept.txt").read_text(encoding="utf-8").splitlines()
    assert kept == [lines[line - 1] for line in found["kept"]]
    removed = [json.loads(line) for line in (folder / "removed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert removed == found["removed"]
    assert len(kept) + len(removed) == len(lines)
    assert (folder / "pairs.jsonl").is_file()
    code, out, err = run("duplicates", corpus, *options)
    assert code == 1, "files that bertflow cannot know as its own are not replaced"
    assert "--overwrite" in err
    code, out, err = run("duplicates", corpus, *options, "--overwrite")
    assert code == 0, err
    assert "are duplicates of a kept one" in out


def test_tables_keep_their_columns(run, tmp_path, texts, model):
    path = tmp_path / "corpus.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "question"], *([f"n{i}", text] for i, text in enumerate([*texts[:100], texts[0]]))])
    code, _, err = run("duplicates", path, "--column", "question", "-m", model, "-o", tmp_path / "out", "-q")
    assert code == 0, err
    with (tmp_path / "out" / "kept.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"id": "n0", "question": texts[0]}
    assert "n100" not in {row["id"] for row in rows}


def test_a_test_set_against_a_training_set(run, write, texts, model):
    train, test = write("train.txt", texts[:300]), write("test.txt", [*texts[300:], texts[5]])
    code, out, err = run("duplicates", test, "--against", train, "-m", model, "--expect-false", 0.01, "--json", "-q")
    assert code == 0, err
    assert (101, 6) in {(one["line"], one["of_line"]) for one in json.loads(out)["removed"]}


def test_groups_become_a_column(run, write, texts, model, tmp_path):
    corpus, output = write("corpus.txt", texts), tmp_path / "grouped.csv"
    code, out, err = run("cluster", corpus, "-k", 5, "-m", model, "-o", output, "--json", "-q")
    assert code == 0, err
    found = json.loads(out)
    assert len(found["groups"]) == 5
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == texts
    assert [int(row["cluster"]) for row in rows] == found["labels"]
    assert rows[0]["cluster_name"] == found["groups"][found["labels"][0]]["name"]
    central = found["groups"][0]["central"][0]
    assert texts[central["line"] - 1] == central["text"]
    code, out, err = run("cluster", corpus, "-m", model, "-q")
    assert code == 0, err
    assert "a number found from the texts" in out


def test_drift_is_told(run, write, texts, model):
    old, new = (
        write("old.txt", texts[:150]),
        write("new.txt", [*texts[150:250], *[f"{GARBAGE} {i}" for i in range(50)]]),
    )
    code, out, err = run("drift", old, new, "-m", model, "--permutations", 99, "--json", "-q")
    assert code == 0, err
    found = json.loads(out)
    assert found["p_value"] == 0.01
    assert found["new_texts"][0]["line"] > 100
    assert found["refit"] is None
    code, out, err = run("drift", old, old, "-r", "whitening-half", "--refit", "--permutations", 99, "-q")
    assert code == 0, err
    assert "p = " in out
    assert "A refit" in out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("outliers", "FEW"), "At least 50"),
        (("outliers", "CORPUS", "--model", "nowhere"), "does not exist"),
        (("outliers", "CORPUS", "--model", "MODEL", "--recipe", "raw"), "leave out --recipe"),
        (("outliers", "CORPUS", "--against", "absent.txt"), "absent.txt"),
        (("duplicates", "CORPUS", "-m", "MODEL", "--expect-false", "0"), "above 0"),
        (("duplicates", "CORPUS", "-m", "MODEL", "-o", "CORPUS"), "is a file"),
        (("duplicates", "absent.txt"), "absent.txt"),
        (("cluster", "CORPUS", "-m", "MODEL", "-k", "1"), "k is 1"),
        (("cluster", "CORPUS", "-o", "grouped.txt"), ".jsonl or .csv"),
        (("drift", "CORPUS", "FEW", "-m", "MODEL"), "20 texts or more"),
        (("cluster", "CORPUS", "--column", "text"), "plain text"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, write, texts, model, tmp_path, monkeypatch, args, sentence):
    monkeypatch.chdir(tmp_path)
    places = {"CORPUS": write("corpus.txt", texts), "FEW": write("few.txt", ["One.", "Two."]), "MODEL": model}
    code, out, err = run(*(places.get(arg, arg) for arg in args), "-q")
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
