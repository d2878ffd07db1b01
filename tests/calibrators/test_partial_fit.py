"""A fitted flow that goes on with new rows: it adapts, it does not get worse, and it does so the same way each time."""

import logging
from copy import deepcopy

import numpy as np
import pytest

from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.errors import InputError


def bent(n=1000, d=6, seed=0, dtype=np.float64):
    """Correlated rows that no Gaussian fits."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[:, 1::2] = 0.4 * x[:, 1::2] + x[:, 0::2] ** 2
    return x.astype(dtype)


def elsewhere(n, seed=1, dtype=np.float64):
    """Rows like ``bent``'s that were moved and scaled: another domain."""
    return (bent(n, seed=seed) * [0.5, 1, 1, 1.5, 1, 1] + [1, 0, 0.5, 0, 0, -1]).astype(dtype)


def small(**settings):
    return FlowCalibrator(**{"levels": 2, "depth": 2, "width": 8, "random_state": 0, "device": "cpu"} | settings)


@pytest.fixture(scope="module")
def fitted():
    return small().fit(bent())


def states(*calibrators):
    return zip(*(calibrator.get_state()[1].values() for calibrator in calibrators), strict=True)


@pytest.mark.parametrize("settings", [{}, {"preset": "paper"}, {"coupling": "affine"}, {"permutation": "linear"}])
def test_an_unfitted_flow_is_fitted(settings):
    x = bent(200)
    ours, theirs = small(**settings).partial_fit(x), small(**settings).fit(x)
    assert all(np.array_equal(a, b) for a, b in states(ours, theirs))


@pytest.mark.parametrize("rows", [100, 500, 3000])
def test_new_rows_become_likelier(fitted, rows):
    adapted, unseen = deepcopy(fitted).partial_fit(elsewhere(rows)), elsewhere(1000, seed=2)
    assert adapted.score(unseen) > fitted.score(unseen) + 0.05
    assert adapted.history_.best_step > 0


def test_few_rows_teach_more_on_top_of_a_fitted_flow_than_alone(fitted):
    unseen, few = elsewhere(1000, seed=2), elsewhere(30)
    assert deepcopy(fitted).partial_fit(few).score(unseen) > small().fit(few).score(unseen)


def test_the_old_flow_stays_where_nothing_better_is_found(fitted, caplog):
    caplog.set_level(logging.ERROR, logger="bertflow")  # it says that it diverges, as it should
    adapted = deepcopy(fitted).set_params(learning_rate=30.0).partial_fit(bent(40, seed=5))
    assert adapted.history_.best_step == 0
    assert all(np.array_equal(a, b) for a, b in states(adapted, fitted))


def test_it_is_repeatable_and_the_seed_counts(fitted):
    x = elsewhere(300)
    first, again = (deepcopy(fitted).partial_fit(x) for _ in range(2))
    other = deepcopy(fitted).set_params(random_state=1).partial_fit(x)
    assert all(np.array_equal(a, b) for a, b in states(first, again))
    assert not all(np.array_equal(a, b) for a, b in states(first, other))


def test_a_loaded_flow_goes_on_as_the_one_in_memory(fitted):
    loaded = Calibrator.from_state(*fitted.get_state(), device="cpu")
    x = elsewhere(200)
    assert all(np.array_equal(a, b) for a, b in states(loaded.partial_fit(x), deepcopy(fitted).partial_fit(x)))


def test_the_map_stays_invertible_and_keeps_its_dtype(fitted):
    x = elsewhere(300, dtype=np.float32)
    adapted = deepcopy(fitted).partial_fit(x)
    assert adapted.transform(x).dtype == np.float32
    assert np.allclose(adapted.inverse_transform(adapted.transform(x)), x, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((50, 5)), "6 features"),
        (elsewhere(9), "10 at least"),
        (np.full((50, 6), np.nan), "NaN"),
        ([["a"] * 6] * 20, "float"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(fitted, rows, message):
    adapted = deepcopy(fitted)
    with pytest.raises((ValueError, InputError), match=message):
        adapted.partial_fit(rows)
    assert all(np.array_equal(a, b) for a, b in states(adapted, fitted))


def test_batches_one_after_the_other_go_on_getting_better(fitted):
    adapted, unseen, scores = deepcopy(fitted), elsewhere(1000, seed=2), []
    for seed in range(3, 7):
        adapted.partial_fit(elsewhere(400, seed=seed))
        scores.append(adapted.score(unseen))
    assert scores[-1] > scores[0]
