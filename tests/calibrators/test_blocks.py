import copy

import numpy as np
import pytest

from bertflow import Calibrator, FlowCalibrator
from bertflow.calibrators import BlockFlow
from bertflow.errors import InputError

X = np.random.default_rng(0).normal(size=(300, 12)) @ np.random.default_rng(1).normal(size=(12, 12)) + 2


@pytest.fixture(scope="module")
def fitted():
    return BlockFlow(random_state=0).fit(X)


def test_each_half_is_a_flow_of_its_own(fitted):
    z = fitted.transform(X)
    for part, cut in zip(np.split(z, 2, axis=1), np.split(X, 2, axis=1), strict=True):
        alone = FlowCalibrator(preset="paper", random_state=0).fit(np.ascontiguousarray(cut))
        np.testing.assert_allclose(part, alone.transform(cut), atol=1e-9)


def test_there_and_back(fitted):
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(X)), X, atol=1e-6)


def test_densities_add_up(fitted):
    expected = sum(flow.score_samples(part) for flow, part in zip(fitted.flows_, np.split(X, 2, axis=1), strict=True))
    np.testing.assert_allclose(fitted.score_samples(X), expected)


def test_state_there_and_back(fitted):
    again = Calibrator.from_state(*fitted.get_state())
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))


@pytest.mark.parametrize("blocks", [0, 5, 12])
def test_parts_must_be_equal_and_large_enough(blocks):
    with pytest.raises(InputError, match="cannot be cut"):
        BlockFlow(blocks).fit(X)


def test_a_missing_array_is_named(fitted):
    settings, arrays = fitted.get_state()
    del arrays["1.levels.0.0.actnorm.loc"]
    with pytest.raises(InputError, match="missing"):
        Calibrator.from_state(settings, arrays)


def test_weights_scale_the_parts(fitted):
    weighted = BlockFlow(2, (1.0, 0.25), random_state=0).fit(X)
    (first, second), (one, two) = (np.split(each.transform(X), 2, axis=1) for each in (weighted, fitted))
    np.testing.assert_allclose(first, one, atol=1e-9)
    np.testing.assert_allclose(second, 0.5 * two, atol=1e-9)  # a quarter of the weight in a dot product
    np.testing.assert_allclose(weighted.inverse_transform(weighted.transform(X)), X, atol=1e-6)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, -1.0)])
def test_weights_are_one_positive_number_a_part(weights):
    with pytest.raises(InputError, match="positive numbers"):
        BlockFlow(2, weights).fit(X)


def test_partial_fit_goes_on_with_each_flow(fitted):
    moved = X + np.arange(12)
    adapted = copy.deepcopy(fitted).partial_fit(moved)
    assert adapted.score_samples(moved).mean() > fitted.score_samples(moved).mean()
    unfitted = BlockFlow(random_state=0).partial_fit(X)
    np.testing.assert_array_equal(unfitted.transform(X), fitted.transform(X))
