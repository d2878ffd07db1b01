"""The data sets beside STS, by name: real files where they are, and what is said where they are not."""

import os
from pathlib import Path

import pytest

from bertflow.errors import InputError
from bertflow.evaluation import TASKS, ClusterTask, PairTask, SearchTask, load_pairs, load_task
from bertflow.evaluation.development import DATA_SETS

PAIRS = {"semrel": 5416, "parade": 1275, "qqp": 10000, "zh-sts-dev": 1458, "lcqmc": 8802, "bq": 10000}


@pytest.fixture
def real_data():
    folder = Path(os.environ.get("BERTFLOW_DATA", ""))
    if not (folder / "tasks").is_dir():
        pytest.skip("the data sets beside STS are not here: set BERTFLOW_DATA to a folder that has them in tasks/")
    return folder


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(real_data, name):
    task = load_task(name)
    assert isinstance(task, PairTask)
    assert (task.name, len(task.subsets["all"])) == (name, PAIRS[name])
    assert task.metric == ("spearman" if name in ("semrel", "zh-sts-dev") else "auc")
    assert task.fit_sentences == task.sentences


@pytest.mark.parametrize(("name", "documents", "queries"), [("cisi", 1460, 76), ("dbpedia", 5000, 40)])
def test_search(real_data, name, documents, queries):
    task = load_task(name)
    assert isinstance(task, SearchTask)
    assert (len(task.documents), len(task.judged)) == (documents, queries)
    with pytest.raises(InputError, match="has no pairs of sentences"):
        load_pairs(name)


def test_clusters(real_data):
    task = load_task("banking77")
    assert isinstance(task, ClusterTask)
    assert (len(task.texts), len(set(task.labels))) == (3080, 77)


def test_every_name_is_known():
    assert set(TASKS) == {"STS-B", "SICK-R", *(f"STS{y}" for y in range(12, 17)), "QNLI", *DATA_SETS}
    assert set(PAIRS) | {"cisi", "dbpedia", "banking77"} == set(DATA_SETS)


@pytest.mark.parametrize("name", DATA_SETS)
def test_what_is_not_there_is_said_with_its_place(tmp_path, name):
    with pytest.raises(InputError, match=f"{name} is not in .*: put it at .*tasks"):
        load_task(name, tmp_path)


def test_another_copy_is_refused(tmp_path):
    (tmp_path / "tasks" / "zh").mkdir(parents=True)
    (tmp_path / "tasks" / "zh" / "cnsd-sts-dev.txt").write_text("1||a||b||5\n2||c||d||1\n")
    with pytest.raises(InputError, match="has 4 different texts; zh-sts-dev has 2798"):
        load_task("zh-sts-dev", tmp_path)


def test_a_wrong_split_and_a_near_name(tmp_path):
    with pytest.raises(InputError, match="has no split 'dev'; it has one only"):
        load_task("semrel", tmp_path, split="dev")
    with pytest.raises(InputError, match="Did you mean 'banking77'"):
        load_task("banking", tmp_path)
