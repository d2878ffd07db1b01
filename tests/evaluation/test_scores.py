import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from bertflow.errors import InputError
from bertflow.evaluation import compare, metric_value, score_pairs
from bertflow.evaluation.bootstrap import bootstrap_draws, weighted_statistic


def made_up(sizes=(40, 25, 90), seed=0, levels=6):
    rng = np.random.default_rng(seed)
    gold = {f"part{i}": rng.integers(levels, size=n).astype(float) for i, n in enumerate(sizes)}
    return {name: values + rng.normal(0, 2, len(values)) for name, values in gold.items()}, gold


def reference(metric, x, y):
    """What scipy and scikit-learn say of one resample, written out; NaN where they have no answer."""
    if metric == "auc":
        return roc_auc_score(y, x) if 0 < y.sum() < len(y) else np.nan
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan
    return (stats.spearmanr if metric == "spearman" else stats.pearsonr)(x, y).statistic


@pytest.mark.parametrize("metric", ["spearman", "pearson", "auc"])
@pytest.mark.parametrize(("n", "ties"), [(3, False), (30, True), (30, False), (200, True)])
def test_resampled_statistics_equal_those_of_the_resample_written_out(metric, n, ties):
    rng = np.random.default_rng(n)
    x = rng.normal(size=n).round(1 if ties else 9)
    y = rng.integers(2 if metric == "auc" else 4, size=n).astype(float)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=40).astype(float)
    expected = [reference(metric, np.repeat(x, c.astype(int)), np.repeat(y, c.astype(int))) for c in counts]
    np.testing.assert_allclose(weighted_statistic(metric, x, y)(counts), expected, atol=1e-12)


def test_settings_on_spearman():
    similarities, gold = made_up()
    each = {name: 100 * stats.spearmanr(similarities[name], gold[name]).statistic for name in gold}
    sizes = [len(values) for values in gold.values()]
    pooled = stats.spearmanr(np.concatenate([*similarities.values()]), np.concatenate([*gold.values()])).statistic
    expected = {
        "all": 100 * pooled,
        "mean": np.mean([*each.values()]),
        "wmean": np.average([*each.values()], weights=sizes),
    }
    for setting, value in expected.items():
        score = score_pairs(similarities, gold, setting=setting, resamples=50)
        assert score.value == pytest.approx(value)
        assert score.per_subset == pytest.approx(each)
        assert (score.setting, score.metric, score.pairs) == (setting, "spearman", sum(sizes))
        assert score.low < score.value < score.high


def test_auc_and_json():
    similarities, gold = made_up((300,), levels=2)
    score = score_pairs(similarities, gold, "auc", resamples=200)
    assert score.value == pytest.approx(100 * roc_auc_score(gold["part0"], similarities["part0"]))
    assert json.loads(json.dumps(score.to_dict(), allow_nan=False)) == score.to_dict()


def test_no_resamples_no_interval():
    score = score_pairs(*made_up(), resamples=0)
    assert (score.low, score.high) == (None, None)


@pytest.mark.parametrize("setting", ["all", "wmean"])
def test_equal_seeds_give_equal_intervals(setting):
    one, same, other = (score_pairs(*made_up(), setting=setting, resamples=100, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.low != other.low


def test_draws_do_not_depend_on_how_they_are_batched(monkeypatch):
    similarities, gold = made_up((50,))
    strata = [([similarities["part0"]], gold["part0"])]
    whole = bootstrap_draws(strata, [1.0], "spearman", 30, 0)
    monkeypatch.setattr("bertflow.evaluation.bootstrap._CELLS", 200)
    np.testing.assert_array_equal(bootstrap_draws(strata, [1.0], "spearman", 30, 0), whole)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = 100 * 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman of a normal pair with correlation 0.6
    hits = 0
    for seed in range(60):
        x = rng.normal(size=200)
        y = 0.6 * x + 0.8 * rng.normal(size=200)
        score = score_pairs({"all": x}, {"all": y}, resamples=200, seed=seed, confidence=0.9)
        hits += score.low <= truth <= score.high
    assert 46 <= hits <= 60


def test_comparison_sees_a_difference_and_no_difference():
    rng = np.random.default_rng(0)
    gold = {"a": rng.normal(size=400), "b": rng.normal(size=200)}
    good = {name: values + rng.normal(0, 0.5, len(values)) for name, values in gold.items()}
    bad = {name: values + rng.normal(0, 3, len(values)) for name, values in gold.items()}
    for setting in ("all", "mean", "wmean"):
        found = compare(good, bad, gold, setting=setting, resamples=200)
        value = score_pairs(good, gold, setting=setting).value - score_pairs(bad, gold, setting=setting).value
        assert found.difference == pytest.approx(value)
        assert 0 < found.low < found.difference < found.high
        assert found.p_value == pytest.approx(2 / 201)
        back = compare(bad, good, gold, setting=setting, resamples=200)
        assert (back.difference, back.low, back.high) == pytest.approx((-value, -found.high, -found.low))
    same = compare(good, {name: 3 * values for name, values in good.items()}, gold, resamples=200)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert json.dumps(same.to_dict())


def test_p_values_are_spread_evenly_when_nothing_differs():
    rng = np.random.default_rng(1)
    p_values = []
    for seed in range(60):
        gold = rng.normal(size=100)
        one, two = (gold + rng.normal(size=100) for _ in range(2))
        p_values.append(compare({"x": one}, {"x": two}, {"x": gold}, resamples=200, seed=seed).p_value)
    assert np.mean(np.array(p_values) < 0.1) < 0.25
    assert 0.3 < np.mean(p_values) < 0.7


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
@pytest.mark.parametrize(
    ("similarities", "gold", "message"),
    [
        ([0.5], [1.0], "at least 2 pairs; 1 came"),
        ([0.1, 0.2, 0.3], [4.0, 4.0, 4.0], "All 3 gold scores are 4; .* is undefined where nothing varies"),
        ([0.9, 0.9, 0.9], [1.0, 2.0, 3.0], "All 3 similarities are 0.9; .* is undefined"),
        ([0.1, np.nan], [1.0, 2.0], "NaN"),
        ([0.1, 0.2], [1.0, np.inf], "infinity"),
    ],
)
def test_undefined_correlations_say_why(metric, similarities, gold, message):
    with pytest.raises(InputError, match=message):
        metric_value(metric, np.array(similarities), np.array(gold))


@pytest.mark.parametrize("gold", [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
def test_auc_needs_two_classes(gold):
    with pytest.raises(InputError, match="labels 0 and 1, both present"):
        metric_value("auc", np.array([0.1, 0.2, 0.3]), np.array(gold))


def test_an_undefined_subset_is_named_or_left_open():
    similarities, gold = made_up()
    gold["part1"] = np.full_like(gold["part1"], 2.0)
    with pytest.raises(InputError, match="Sub-set 'part1': All 25 gold scores are 2"):
        score_pairs(similarities, gold, setting="wmean")
    assert score_pairs(similarities, gold, resamples=10).per_subset["part1"] is None


def test_two_pairs_still_have_an_interval():
    score = score_pairs({"x": np.array([0.1, 0.9])}, {"x": np.array([1.0, 5.0])}, resamples=50)
    assert (score.value, score.low, score.high) == pytest.approx((100, 100, 100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "kendall"}, "no metric 'kendall'"),
        ({"setting": "median"}, "no setting 'median'"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"similarities": {"part0": np.zeros(40)}}, "exactly these sub-sets: part0, part1, part2"),
        ({"gold": {}}, "none came"),
    ],
)
def test_wrong_arguments(change, message):
    similarities, gold = made_up()
    with pytest.raises(InputError, match=message):
        score_pairs(**({"similarities": similarities, "gold": gold, "resamples": 5} | change))


def test_misaligned_subsets_are_refused():
    gold = {"a": np.arange(3.0), "b": np.arange(4.0)}
    with pytest.raises(InputError, match=r"Sub-set 'a'.*differ in shape"):
        score_pairs({"a": np.arange(4.0), "b": np.arange(3.0)}, gold)


def test_comparison_needs_resamples():
    similarities, gold = made_up()
    with pytest.raises(InputError, match="needs resamples"):
        compare(similarities, similarities, gold, resamples=0)
