"""Choosing on some folds and telling the gain on the others."""

import numpy as np
import pytest

from bertflow import InputError
from bertflow.advice.candidates import Candidate
from bertflow.advice.crossvalidation import FOLDS, check_pairs, choose, crossvalidate, deal
from bertflow.evaluation import PairSet, PairTask

RAW, GOOD = Candidate("mean", "none"), Candidate("mean", "flow")


def noisy(gold, noise, seed):
    return gold + noise * np.random.default_rng(seed).normal(size=len(gold))


@pytest.fixture
def gold():
    return np.random.default_rng(0).uniform(0, 5, size=400).round(1)


def task(gold, metric="spearman"):
    texts = [f"sentence {i}" for i in range(len(gold))]
    return PairTask("own", metric, {"all": PairSet(texts, texts[::-1], np.asarray(gold, dtype=float))}, texts)


@pytest.mark.parametrize("n", [50, 53, 400])
def test_folds_are_of_one_size_and_have_low_and_high_scores(n):
    gold = np.arange(n) % 2 * 1.0
    fold = deal(gold, 0)
    sizes = np.bincount(fold, minlength=FOLDS)
    assert sizes.max() - sizes.min() <= 1
    assert all(0.25 < gold[fold == number].mean() < 0.75 for number in range(FOLDS))


def test_a_better_candidate_is_chosen_and_its_gain_told(gold):
    similarities = {RAW: noisy(gold, 4, 1), GOOD: noisy(gold, 1, 2)}
    found = crossvalidate(similarities, gold, "spearman", RAW)
    assert found.choice == GOOD
    assert found.picks == {GOOD: FOLDS}
    assert found.gain.low > 0
    assert found.gain.difference == pytest.approx(found.values[GOOD] - found.values[RAW], abs=5)


def test_the_best_of_many_that_are_no_better_gains_nothing(gold):
    similarities = {Candidate("mean", f"natsv-{i}"): noisy(gold, 4, i) for i in range(1, 20)} | {
        RAW: noisy(gold, 4, 99)
    }
    found = crossvalidate(similarities, gold, "spearman", RAW)
    flattered = max(found.values.values()) - found.values[RAW]
    assert found.gain.difference < flattered
    assert found.gain.low <= 0


def test_the_baseline_stays_unless_the_lead_is_significant(gold):
    few = {one: values[:60] for one, values in {RAW: noisy(gold, 2, 1), GOOD: noisy(gold, 1.99, 2)}.items()}
    assert choose(few, gold[:60], "spearman", RAW, 0) == RAW


def test_labels_of_zero_and_one_are_judged_by_auc():
    gold = np.arange(200) % 2 * 1.0
    found = crossvalidate({RAW: noisy(gold, 3, 1), GOOD: noisy(gold, 0.5, 2)}, gold, "auc", RAW)
    assert found.choice == GOOD
    assert found.gain.low > 0


@pytest.mark.parametrize(
    ("gold", "metric", "words"),
    [
        (np.arange(20.0), "spearman", "20 labelled pair"),
        (np.ones(80), "spearman", "have the score 1"),
        (np.r_[np.ones(78), 0, 0], "auc", "only 2 pairs"),
    ],
)
def test_pairs_that_say_nothing_are_refused(gold, metric, words):
    with pytest.raises(InputError, match=words):
        check_pairs(task(gold, metric))
