import logging
import os
from pathlib import Path

import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.evaluation import TASKS, cache_folder, find_data, load_task
from bertflow.evaluation.senteval import read_headed_pairs, read_sts_benchmark, read_sts_subset
from bertflow.evaluation.sts import COUNTS, hub_file

REAL_DATA = os.environ.get("BERTFLOW_DATA")  # read before the fixture below hides it
KNOWN = {
    "STS-B": {"train": 5749, "dev": 1500, "test": 1379, "pooled": 8628},
    "SICK-R": {"train": 4500, "dev": 500, "test": 4927, "pooled": 9927},
    "STS12": {"test": 3108},
    "STS13": {"test": 1500},
    "STS14": {"test": 3750},
    "STS15": {"test": 3000},
    "STS16": {"test": 1186},
    "QNLI": {"test": 5463},
}


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch, tmp_path):
    """No data of this machine unless a test asks for it."""
    monkeypatch.delenv("BERTFLOW_DATA", raising=False)
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real_data():
    if not REAL_DATA or not Path(REAL_DATA).is_dir():
        pytest.skip("the real data sets are not here: set BERTFLOW_DATA to their folder")
    return Path(REAL_DATA)


def write_sts(folder, subset, pairs, end="\n", mark=""):
    folder.mkdir(parents=True, exist_ok=True)
    lines = mark + "".join(f"{a}\t{b}{end}" for a, b, _ in pairs)
    gold = mark + "".join(f"{score}{end}" for *_, score in pairs)
    (folder / f"STS.input.{subset}.txt").write_bytes(lines.encode())
    (folder / f"STS.gs.{subset}.txt").write_bytes(gold.encode())
    return folder / f"STS.input.{subset}.txt"


def numbered(n, tag):
    return [(f"{tag} first {i}", f"{tag} second {i}", i % 6) for i in range(n)]


def write_hub(data, name, split, n):
    path = hub_file(data, name, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (f'{{"sentence1": "{a}", "sentence2": "{b}", "score": {s}}}\n' for a, b, s in numbered(n, split))
    path.write_text("".join(rows))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("name", "split"), [(name, split) for name in KNOWN for split in KNOWN[name]])
def test_real_counts(real_data, name, split, raw):
    task = load_task(name, real_data, raw=raw, split=split)
    assert sum(map(len, task.subsets.values())) == KNOWN[name][split]
    assert list(task.subsets) == (["all"] if split == "pooled" else list(COUNTS[name][split]))
    assert set(task.sentences) <= set(task.fit_sentences)
    assert len(task.fit_sentences) == len(set(task.fit_sentences))
    assert task.metric == ("auc" if name == "QNLI" else "spearman")
    assert not task.subsets_lost


def test_fit_sentences_do_not_depend_on_the_split(real_data):
    parts = [load_task("SICK-R", real_data, split=split) for split in ("train", "dev", "test", "pooled")]
    assert all(part.fit_sentences == parts[0].fit_sentences for part in parts)
    assert len(parts[0].fit_sentences) > len(parts[0].sentences)


def test_raw_sentences_are_cased(real_data):
    assert all(s == s.lower() for s in load_task("STS13", real_data).sentences)
    assert any(s != s.lower() for s in load_task("STS13", real_data, raw=True).sentences)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_pairs_without_gold_are_left_out_and_logged(tmp_path, end, mark, caplog):
    rows = [("a", 'b "quoted', 1.5), ("c", "d", ""), ("e", "f", 4)]
    path = write_sts(tmp_path, "mine", rows, end, mark)
    with caplog.at_level(logging.INFO, "bertflow.evaluation"):
        pairs = read_sts_subset(path)
    assert (pairs.sentences1, pairs.sentences2) == (["a", "e"], ['b "quoted', "f"])
    np.testing.assert_array_equal(pairs.gold, [1.5, 4])
    assert "2 of 3 pairs have gold" in caplog.text


@pytest.mark.parametrize(
    ("lines", "gold", "message"),
    [
        ("a\tb\nc\n", "1\n2\n", r"input\.x\.txt, line 2, has 1 tab-separated column\(s\); 2 or 4 were expected"),
        ("a\tb\nc\td\te\n", "1\n2\n", r"line 2, has 3 tab-separated column\(s\)"),
        ("a\tb\nc\td\n", "1\n", r"has 2 line\(s\), but STS\.gs\.x\.txt beside it has 1"),
        ("a\tb\nc\td\n", "1\nnan\n", r"STS\.gs\.x\.txt, line 2, has the score 'nan'"),
        ("a\tb\nc\t \n", "1\n2\n", "line 2, has ' ' where a sentence was expected"),
    ],
)
def test_malformed_sts_subsets(tmp_path, lines, gold, message):
    (tmp_path / "STS.input.x.txt").write_text(lines)
    (tmp_path / "STS.gs.x.txt").write_text(gold)
    with pytest.raises(InputError, match=message):
        read_sts_subset(tmp_path / "STS.input.x.txt")


def test_sts_benchmark_lines(tmp_path):
    path = tmp_path / "sts-test.csv"
    path.write_text('g\tf\ty\t1\t3.2\tHe said "go\tShe left \ng\tf\ty\t2\t0.0\tc\td\tsource\tsource\n')
    pairs = read_sts_benchmark(path)
    assert (pairs.sentences1, pairs.sentences2) == (['He said "go', "c"], ["She left", "d"])
    path.write_text("g\tf\ty\t1\t3.2\ta\tb\ng\tf\ty\t2\t3.2\ta\n")
    with pytest.raises(InputError, match=r"sts-test\.csv, line 2, has 6 .* 7 or 9 were expected"):
        read_sts_benchmark(path)


def test_sick_lines(tmp_path):
    path = tmp_path / "SICK_trial.txt"
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    path.write_text(f"{header}\r\n4\ta\tb\t3.6\tNEUTRAL\r\n")
    assert read_headed_pairs(path).gold == [3.6]


def test_wrong_count_names_file_and_both_counts(tmp_path):
    for subset, count in COUNTS["STS13"]["test"].items():
        write_sts(tmp_path / "STS" / "STS13-en-test", subset, numbered(count - (subset == "OnWN"), subset))
    with pytest.raises(InputError, match=r"STS\.input\.OnWN\.txt has 560 pair\(s\) with gold; the data set has 561"):
        load_task("STS13", tmp_path)


@pytest.mark.parametrize("base", [".", "downstream", "senteval/downstream"])
def test_senteval_is_found_at_any_depth(tmp_path, base):
    for subset, count in COUNTS["STS13"]["test"].items():
        write_sts(tmp_path / base / "STS" / "STS13-en-test", subset, numbered(count, subset))
    task = load_task("STS13", tmp_path)
    assert sum(map(len, task.subsets.values())) == 1500
    with pytest.raises(InputError, match=r"STS13 is not in .* bertflow data get"):
        load_task("STS13", tmp_path, raw=True)


def test_empty_file_of_a_task(tmp_path):
    folder = tmp_path / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    (folder / "sts-train.csv").write_text("")
    with pytest.raises(InputError, match=r"sts-train\.csv has 0 pair\(s\)"):
        load_task("STS-B", tmp_path)


def test_hub_copies_are_the_fallback_without_subsets(tmp_path, caplog):
    write_hub(tmp_path, "STS16", "test", 1186)
    task = load_task("STS16", tmp_path)
    assert (list(task.subsets), task.subsets_lost) == (["all"], True)
    assert "without sub-sets" in caplog.text


def test_hub_sick_is_pooled_only(tmp_path):
    write_hub(tmp_path, "SICK-R", "pooled", 9927)
    task = load_task("SICK-R", tmp_path, split="pooled")
    assert (len(task.subsets["all"]), task.subsets_lost) == (9927, False)
    with pytest.raises(InputError, match="does not say which pairs are test"):
        load_task("SICK-R", tmp_path)


def test_half_a_hub_copy_is_refused(tmp_path):
    write_hub(tmp_path, "STS-B", "test", 1379)
    with pytest.raises(InputError, match=r"train\.jsonl cannot be read"):
        load_task("STS-B", tmp_path)


@pytest.mark.parametrize(
    ("name", "split", "message"), [("STS17", "test", "tasks are STS-B"), ("STS12", "dev", "has test")]
)
def test_unknown_names(tmp_path, name, split, message):
    with pytest.raises(InputError, match=message):
        load_task(name, tmp_path, split=split)


def test_all_tasks_of_the_paper():
    assert set(COUNTS) == set(KNOWN) <= set(TASKS)


def test_find_data_prefers_argument_then_variable_then_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path.parent / "shared" / "data").mkdir(parents=True, exist_ok=True)
    with pytest.raises(InputError, match="bertflow data get"):
        find_data()
    places = [cache_folder() / "data", tmp_path / "variable", tmp_path / "argument"]
    for place in places:
        place.mkdir(parents=True)
    assert find_data() == places[0]
    monkeypatch.setenv("BERTFLOW_DATA", str(places[1]))
    assert find_data() == places[1]
    assert find_data(places[2]) == places[2]


@pytest.mark.parametrize("source", ["argument", "BERTFLOW_DATA"])
def test_a_named_folder_must_exist(tmp_path, monkeypatch, source):
    if source == "BERTFLOW_DATA":
        monkeypatch.setenv(source, str(tmp_path / "gone"))
    with pytest.raises(InputError, match=f"gone.*{source}"):
        find_data(tmp_path / "gone" if source == "argument" else None)
