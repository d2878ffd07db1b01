import json

import numpy as np
import pytest

from bertflow import Encoder, InputError
from bertflow.calibrators import Whitening
from bertflow.evaluation import ClusterTask, PairSet, PairTask, SearchTask, evaluate_task
from bertflow.evaluation.comparison import compare_recipes, default_recipes


class Letters:
    """An encoder of made-up vectors that counts what it is asked for."""

    name, dim, fingerprint = "letters", 8, "letters-1"

    def __init__(self):
        self.encoded = []

    def encode(self, sentences, *, show_progress_bar=False):
        self.encoded += sentences
        rows = [np.random.default_rng([ord(c) for c in text]).normal(size=8) + 3 for text in sentences]
        return np.array(rows, dtype=np.float32)

    def describe(self):
        return {"name": self.name}


def made_up_task(name, seed, subsets=("one", "two")):
    rng = np.random.default_rng(seed)
    texts = [f"{name} {i}" for i in range(120)]
    parts = {
        part: PairSet(texts[k * 40 : k * 40 + 40], texts[k * 40 + 1 : k * 40 + 41], rng.uniform(0, 5, 40))
        for k, part in enumerate(subsets)
    }
    return PairTask(name, "spearman", parts, texts)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path))


@pytest.fixture
def tasks():
    return [made_up_task("a", 1), made_up_task("b", 2, ("all",))]


def test_many_recipes_cost_one_encoding(tasks):
    encoder = Letters()
    compare_recipes(encoder, tasks, ["none", "sn", "whitening", "flow"], seeds=(0, 1), resamples=20)
    assert len(encoder.encoded) == len(set(encoder.encoded)) == 240
    again = Letters()
    compare_recipes(again, tasks, ["none", "natsv-1"], resamples=0)
    assert again.encoded == [], "the cache on disk knows them"


def test_figures_are_those_of_the_parts(tasks):
    encoder = Letters()
    result = compare_recipes(encoder, tasks, ["none", "whitening"], resamples=50)
    white = Whitening().fit(encoder.encode(tasks[0].fit_sentences))
    alone = evaluate_task(tasks[0], lambda texts: white.transform(encoder.encode(texts)), "wmean", resamples=0)
    assert result.results["whitening"]["a"].value == pytest.approx(alone.value)
    assert result.results["none"]["a"].score.setting == "wmean"
    assert result.results["none"]["b"].score.setting == "all", "a task without sub-sets has no means of them"
    assert result.results["none"]["a"].p_value is None
    assert 0 < result.results["whitening"]["a"].p_value <= 1
    mean = np.mean([result.results["none"][task].value for task in "ab"])
    assert result.average("none") == pytest.approx(mean)
    assert result.best("a") == max(result.results, key=lambda name: result.results[name]["a"].value)


def test_only_the_flow_is_fitted_with_every_seed(tasks):
    result = compare_recipes(Letters(), tasks[:1], ["sn", "flow"], seeds=(3, 4, 5), resamples=0)
    assert result.results["sn"]["a"].deviation is None
    flow = result.results["flow"]["a"]
    assert len(flow.values) == 3
    assert flow.deviation == pytest.approx(np.std(flow.values, ddof=1))
    assert str(flow) == f"{flow.value:.2f}±{flow.deviation:.2f}"


def test_fitted_on_other_sentences(tasks):
    general = [f"general {i}" for i in range(100)]
    result = compare_recipes(Letters(), tasks, ["whitening"], fit_on=general, resamples=0)
    assert result.fit_on == "100 sentences"
    target = compare_recipes(Letters(), tasks, ["whitening"], resamples=0)
    assert result.results["whitening"]["a"].value != target.results["whitening"]["a"].value


def test_json_and_markdown_carry_the_figures(tasks):
    result = compare_recipes(Letters(), tasks, ["none", "sn"], resamples=20)
    figures = json.loads(json.dumps(result.to_dict()))
    assert figures["results"]["sn"]["a"]["value"] == result.results["sn"]["a"].value
    lines = result.to_markdown().splitlines()
    assert lines[0] == "| recipe | a | b | average |"
    assert len(lines) == 4
    assert lines[2].count("**") + lines[3].count("**") == 6, "one best in each of three columns"


def test_every_kind_of_task_in_one_table():
    encoder = Letters()
    texts = [f"text {i}" for i in range(60)]
    documents = {text: text for text in texts}
    tasks = [
        made_up_task("pairs", 3),
        SearchTask("search", {"q": "query"}, documents, {"q": {"text 3": 1, "text 9": 2}}),
        ClusterTask("clusters", texts, [str(i % 5) for i in range(60)], seeds=(0, 1)),
    ]
    result = compare_recipes(encoder, tasks, ["raw", "whitening"], resamples=30)
    units = [result.results["whitening"][task.name].score.unit for task in tasks]
    assert units == ["pairs", "queries", "texts"]
    assert all(result.results["whitening"][task.name].p_value is not None for task in tasks)
    assert len(encoder.encoded) == len(set(encoder.encoded))
    with pytest.raises(InputError, match="search has no metric 'auc'"):
        compare_recipes(encoder, tasks[1:], ["raw"], metric="auc")


def test_by_default_what_the_encoder_can_do_is_compared(tasks, tiny_bert):
    assert list(compare_recipes(Letters(), tasks[1:], resamples=0).results) == ["raw", "whitening", "flow"]
    assert default_recipes(Encoder(tiny_bert)) == ("raw", "whitening", "flow", "static", "best")


def test_an_unknown_recipe_is_refused_before_anything_is_encoded(tasks):
    encoder = Letters()
    with pytest.raises(InputError, match="whitening"):
        compare_recipes(encoder, tasks, ["raw", "whitenin"])
    assert encoder.encoded == []


@pytest.mark.parametrize("wrong", [{"recipes": []}, {"seeds": []}, {"fit_on": "everything"}, {"tasks": []}])
def test_nothing_to_compare_is_said(tasks, wrong):
    with pytest.raises(InputError):
        compare_recipes(Letters(), **{"tasks": tasks, "recipes": ["none"], **wrong})
