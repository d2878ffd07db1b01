"""Choosing on some folds and telling the gain on the others."""

import numpy as np
import pytest

from bertflow.evaluation import ClusterTask, PairSet, PairTask, SearchTask
from bertflow.evaluation.judgement.labels import FOLDS, choose, deal, measure, part_of, strata_of, too_few

RAW, GOOD = "raw", "flow"


@pytest.fixture
def gold():
    return np.random.default_rng(0).uniform(0, 5, size=400).round(1)


def task(gold, metric="spearman"):
    """Pair i is of the texts i and i + n."""
    n = len(gold)
    pairs = PairSet([str(i) for i in range(n)], [str(i + n) for i in range(n)], np.asarray(gold, dtype=float))
    return PairTask("own", metric, {"all": pairs}, [])


def encode_with(gold, noise, seed):
    """Vectors whose pairs have a cosine that goes with gold, but for noise."""
    n = len(gold)
    likeness = np.asarray(gold) + noise * np.random.default_rng(seed).normal(size=n)
    angle = np.pi * (1 - (likeness - likeness.min()) / np.ptp(likeness)) / 2
    rows = np.zeros((2 * n, 2))
    rows[:n, 0], rows[n:, 0], rows[n:, 1] = 1, np.cos(angle), np.sin(angle)
    return lambda texts: rows[[int(text) for text in texts]]


@pytest.mark.parametrize("n", [50, 53, 400])
def test_folds_are_of_one_size_and_have_low_and_high_scores(n):
    gold = np.arange(n) % 2 * 1.0
    fold = deal(gold, 0)
    sizes = np.bincount(fold, minlength=FOLDS)
    assert sizes.max() - sizes.min() <= 1
    assert all(0.25 < gold[fold == number].mean() < 0.75 for number in range(FOLDS))


@pytest.mark.parametrize("metric", ["spearman", "auc"])
def test_a_better_recipe_is_chosen_and_its_gain_told(gold, metric):
    gold = gold if metric == "spearman" else (gold > 2.5) * 1.0
    noise = (4, 1) if metric == "spearman" else (3, 0.5)
    encodes = {RAW: encode_with(gold, noise[0], 1), GOOD: encode_with(gold, noise[1], 2)}
    found = measure(task(gold, metric), encodes, RAW)
    assert found.choice == GOOD
    assert found.picks == {GOOD: FOLDS}
    value, low, high = found.gain
    assert 0 < low < value < high
    assert value == pytest.approx(found.scores[GOOD].value - found.scores[RAW].value, abs=5)


def test_the_best_of_many_that_are_no_better_gains_nothing(gold):
    encodes = {f"natsv-{i}": encode_with(gold, 4, i) for i in range(1, 12)} | {RAW: encode_with(gold, 4, 99)}
    found = measure(task(gold), encodes, RAW)
    flattered = max(score.value for score in found.scores.values()) - found.scores[RAW].value
    assert found.gain[0] < flattered
    assert found.gain[1] <= 0


def test_raw_stays_unless_the_lead_is_significant(gold):
    few = {RAW: encode_with(gold[:60], 2, 1), GOOD: encode_with(gold[:60], 1.99, 2)}
    assert choose(task(gold[:60]), few, RAW, 0) == RAW


def test_a_search_is_dealt_by_its_queries():
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(60, 8))
    documents = {str(i): f"d{i}" for i in range(60)}
    queries = {f"q{i}": f"q{i}" for i in range(40)}
    search = SearchTask("own", queries, documents, {f"q{i}": {str(i): 1.0} for i in range(40)})
    assert part_of(search, np.array([3, 5])).judged == ["q3", "q5"]
    noisy = {name: meaning + noise * rng.normal(size=meaning.shape) for name, noise in ((RAW, 1.5), (GOOD, 0.1))}

    def encode(name):
        return lambda texts: np.array([(noisy[name] if t[0] == "q" else meaning)[int(t[1:])] for t in texts])

    found = measure(search, {name: encode(name) for name in (RAW, GOOD)}, RAW)
    assert found.choice == GOOD
    assert found.gain[1] > 0


def test_clusters_are_dealt_by_their_labels():
    rng = np.random.default_rng(0)
    texts, labels = [str(i) for i in range(100)], [str(i % 4) for i in range(100)]
    clusters = ClusterTask("own", texts, labels)
    assert len(np.unique(strata_of(clusters))) == 4
    centres = {RAW: 0.5, GOOD: 5.0}
    rows = {name: np.eye(4)[np.arange(100) % 4] * far + rng.normal(size=(100, 4)) for name, far in centres.items()}
    encodes = {name: lambda texts, x=x: x[[int(text) for text in texts]] for name, x in rows.items()}
    found = measure(clusters, encodes, RAW)
    assert found.choice == GOOD


@pytest.mark.parametrize(
    ("gold", "metric", "words"),
    [
        (np.arange(20.0), "spearman", "20 labels"),
        (np.ones(80), "spearman", "have one score"),
        (np.r_[np.ones(78), 0, 0], "auc", "only 2 pairs"),
        (np.arange(80.0), "spearman", None),
    ],
)
def test_labels_that_say_nothing_are_known(gold, metric, words):
    found = too_few(task(gold, metric))
    assert found is None if words is None else words in found
