import logging
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from bertflow.errors import InputError, MissingExtraError
from bertflow.evaluation import cache_folder, find_data, load_task
from bertflow.evaluation.download import download

SIZES = {
    "mteb/stsbenchmark-sts": {"train": 5749, "validation": 1500, "test": 1379},
    "mteb/sickr-sts": {"test": 9927},
    "mteb/sts12-sts": {"train": 2234, "test": 3108},
    "mteb/sts13-sts": {"test": 1500},
    "mteb/sts14-sts": {"test": 3750},
    "mteb/sts15-sts": {"test": 3000},
    "mteb/sts16-sts": {"test": 1186},
    "nyu-mll/glue": {"validation": 5463},
}


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the package ``datasets`` with made-up rows in the shapes of the real ones."""
    sizes = {name: dict(splits) for name, splits in SIZES.items()}

    def load_dataset(path, name=None, *, split):
        n = sizes[path][split]
        if path == "nyu-mll/glue":
            assert name == "qnli"
            return [{"question": f"q{i}?", "sentence": f"s{i}", "label": i % 2, "idx": i} for i in range(n)]
        return [{"sentence1": f"{split} é{i}", "sentence2": f"b{i}", "score": i % 6, "genre": "x"} for i in range(n)]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return sizes


def test_downloaded_tasks_can_be_loaded(hub, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        assert download(tmp_path) == tmp_path
    assert "setting 'all' only" in caplog.text
    for name, expected in {"STS-B": 1379, "STS12": 3108, "STS16": 1186, "QNLI": 5463}.items():
        task = load_task(name, tmp_path)
        assert len(task.subsets["all"]) == expected
        assert task.subsets_lost == (name in ("STS12", "STS16"))
    assert load_task("STS-B", tmp_path, split="dev").subsets["all"].sentences1[0] == "validation é0"
    assert len(load_task("SICK-R", tmp_path, split="pooled").subsets["all"]) == 9927
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_qnli_entailment_becomes_one(hub, tmp_path):
    task = load_task("QNLI", download(tmp_path, ["QNLI"]))
    assert task.metric == "auc"
    np.testing.assert_array_equal(task.subsets["all"].gold[:4], [1, 0, 1, 0])


def test_default_folder_is_found_again(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BERTFLOW_DATA", raising=False)
    (tmp_path / "x" / "y").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "x" / "y")
    download(names=["STS16"])
    assert find_data() == cache_folder() / "data"
    assert load_task("STS16").subsets_lost


def test_a_copy_of_the_wrong_size_is_not_written(hub, tmp_path):
    hub["mteb/stsbenchmark-sts"]["test"] = 1378
    with pytest.raises(InputError, match=r"mteb/stsbenchmark-sts, split test, has 1378 pairs; 1379 were expected"):
        download(tmp_path, ["STS-B"])
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    "error", [ConnectionError("no route\nto host"), RuntimeError("offline mode"), KeyError("score")]
)
def test_offline_is_one_sentence(tmp_path, monkeypatch, error):
    def load_dataset(*args, **kwargs):
        raise error

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(InputError, match=r"STS12 could not be fetched.*check the network") as caught:
        download(tmp_path, ["STS12"])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(hub, tmp_path, monkeypatch):
    path = tmp_path / "hub" / "STS16" / "test.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("old")

    def full_disk(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("bertflow.evaluation.download.json.dumps", full_disk)
    with pytest.raises(OSError, match="disk full"):
        download(tmp_path, ["STS16"])
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["test.jsonl"]


def test_unknown_names_and_missing_package(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no task 'STS17'"):
        download(tmp_path, ["STS17"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"bertflow\[data\]"):
        download(tmp_path, ["STS12"])
