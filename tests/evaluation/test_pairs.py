import csv
import json

import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.evaluation import PairSet, load_pairs_file

ROWS = [("The cat sleeps.", 'A "cat" naps.', 4.5), ("Snow fell.", "He cooks rice.", 0.0), ("I run.", "I walk.", 2.25)]


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tsv(header=("sentence1", "sentence2", "score"), rows=ROWS, end="\n"):
    lines = ["\t".join(header)] if header else []
    return end.join([*lines, *("\t".join(map(str, row)) for row in rows)]) + end


def assert_is_rows(task, metric="spearman"):
    pairs = task.subsets["all"]
    assert task.metric == metric
    assert list(task.subsets) == ["all"]
    assert pairs.sentences1 == [row[0] for row in ROWS]
    assert pairs.sentences2 == [row[1] for row in ROWS]
    np.testing.assert_array_equal(pairs.gold, [row[2] for row in ROWS])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    "header", [("sentence1", "sentence2", "score"), ("Sentence_A", "sentence_B", "relatedness_score"), None]
)
def test_tsv_with_and_without_header(tmp_path, header, mark, end):
    assert_is_rows(load_pairs_file(write(tmp_path, "mine.tsv", mark + tsv(header, end=end))))


def test_csv_jsonl_and_parquet(tmp_path):
    with (tmp_path / "a.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("text1", "text2", "similarity"), *ROWS])
    assert_is_rows(load_pairs_file(tmp_path / "a.csv"))
    columns = dict(zip(("sentence1", "sentence2", "score"), zip(*ROWS, strict=True), strict=True))
    lines = [json.dumps({name: values[i] for name, values in columns.items()}) for i in range(len(ROWS))]
    assert_is_rows(load_pairs_file(write(tmp_path, "a.jsonl", "\n".join(lines))))
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({name: list(values) for name, values in columns.items()}), tmp_path / "a.parquet")
    assert_is_rows(load_pairs_file(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("no", "yes"), [("0", "1"), ("0.0", "1.0"), ("False", "true"), ("not_entailment", "entailment")]
)
def test_labels_call_for_auc(tmp_path, no, yes):
    content = tsv(("index", "question", "sentence", "label"), [(0, "Who?", "She.", yes), (1, "When?", "Here.", no)])
    task = load_pairs_file(write(tmp_path, "qa.tsv", content))
    assert (task.name, task.metric) == ("qa", "auc")
    np.testing.assert_array_equal(task.subsets["all"].gold, [1, 0])


def test_a_score_wins_over_a_label(tmp_path):
    content = tsv(("label", "sentence1", "sentence2", "score"), [("x", "a", "b", 3.5)])
    assert load_pairs_file(write(tmp_path, "a.tsv", content)).subsets["all"].gold == [3.5]


def test_fit_sentences_are_distinct_and_ordered(tmp_path):
    task = load_pairs_file(write(tmp_path, "a.tsv", tsv(rows=[("a", "b", 1), ("b", "c", 2), (" a ", "d", 3)])))
    assert task.fit_sentences == task.sentences == ["a", "b", "c", "d"]


def test_a_megabyte_and_one_pair(tmp_path):
    long = "word " * 200_000 + "end"
    task = load_pairs_file(write(tmp_path, "a.tsv", tsv(rows=[(long, "b", 1)])))
    assert task.subsets["all"].sentences1 == [long]
    assert len(task.subsets["all"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", tsv(rows=[("a", "b", 1), ("a", "b", "nan")]), "line 3, has the score 'nan'; a finite number"),
        ("a.tsv", tsv(rows=[("a", "b", "inf")]), "line 2, has the score 'inf'"),
        ("a.tsv", tsv(rows=[("a", "b", "")]), "line 2, has the score ''"),
        ("a.tsv", tsv(rows=[("a", "b", "high")]), "line 2, has the score 'high'"),
        ("a.tsv", tsv(rows=[("a", "", 2)]), "line 2, has '' where a sentence was expected"),
        ("a.tsv", tsv(rows=[("a", "b", 1), ("a", "b")]), r"line 3, has 2 column\(s\); 3 were expected"),
        ("a.tsv", tsv(None, [("a", "b", 1), ("a", "b", 2, 3)]), r"line 2, has 4 column\(s\); 3 were expected"),
        ("a.tsv", tsv(("sentence1", "sentence1", "score")), "line 1, names column 'sentence1' twice"),
        (
            "a.tsv",
            tsv(("sentence1", "other", "score")),
            "has the columns sentence1, other, score; none of them is one of",
        ),
        (
            "a.tsv",
            tsv(("sentence1", "sentence2", "label"), [("a", "b", 2.5)]),
            "has the label '2.5'; 0 or 1 was expected",
        ),
        ("a.tsv", "", "is empty"),
        ("a.tsv", tsv(rows=[]), "holds no pairs"),
        ("a.tsv", b"sentence1\tsentence2\tscore\na\xff\tb\t1\n", "line 2, is not UTF-8"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "score": NaN}', "line 1, has the score nan"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "score": %s}' % ("9" * 400), "line 1, has the score 999"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "score": null}', "line 1, has nothing in column 'score'"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": 7, "score": 1}', "line 1, has 7 where a sentence was expected"),
        ("a.txt", "a\tb\t1\n", "a table ends in"),
    ],
)
def test_what_is_malformed_is_named_with_its_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        load_pairs_file(write(tmp_path, name, content))
    assert name in str(caught.value)


def test_pair_sets_check_themselves():
    with pytest.raises(InputError, match="one length"):
        PairSet(["a"], ["b", "c"], np.array([1.0]))
    with pytest.raises(InputError, match="NaN"):
        PairSet(["a"], ["b"], np.array([np.nan]))
