import numpy as np
import pytest

from bertflow import Calibrator, FlowCalibrator, Whitening
from bertflow.calibrators import WhiteningBesideFlow
from bertflow.errors import InputError

X = np.random.default_rng(0).normal(size=(300, 12)) @ np.random.default_rng(1).normal(size=(12, 12)) + 2


@pytest.fixture(scope="module")
def fitted():
    return WhiteningBesideFlow(4, shrinkage=0.5, flow_weight=0.25, random_state=0).fit(X)


def test_each_part_is_what_it_would_be_alone_but_for_its_length(fitted):
    first, last = np.split(fitted.transform(X), [8], axis=1)
    whitened = Whitening(shrinkage=0.5).fit_transform(X[:, :8])
    flowed = FlowCalibrator(preset="paper", random_state=0).fit_transform(np.ascontiguousarray(X[:, 8:]))
    for part, alone in ((first, whitened), (last, flowed)):
        ratio = np.linalg.norm(part) / np.linalg.norm(alone)
        np.testing.assert_allclose(part, ratio * alone, atol=1e-9)


@pytest.mark.parametrize("weight", [0.25, 2.0])
def test_the_weight_is_the_share_in_a_dot_product(weight):
    z = WhiteningBesideFlow(4, flow_weight=weight, random_state=0).fit(X).transform(X)
    first, last = (np.square(part).sum(axis=1).mean() for part in np.split(z, [8], axis=1))
    assert (first, last) == pytest.approx((1, weight))


def test_there_and_back(fitted):
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(X)), X, atol=1e-6)


def test_state_there_and_back(fitted):
    again = Calibrator.from_state(*fitted.get_state())
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))


@pytest.mark.parametrize("name", ["scales", "whitening.kernel", "flow.levels.0.0.actnorm.loc"])
def test_a_missing_array_is_named(fitted, name):
    settings, arrays = fitted.get_state()
    del arrays[name]
    with pytest.raises(InputError, match="missing"):
        Calibrator.from_state(settings, arrays)


@pytest.mark.parametrize("dims", [0, 1, 11, 12])
def test_both_parts_need_dimensions(dims):
    with pytest.raises(InputError, match="two or more"):
        WhiteningBesideFlow(dims).fit(X)


@pytest.mark.parametrize("weight", [0.0, -1.0, "much"])
def test_the_weight_is_positive(weight):
    with pytest.raises(InputError, match="positive number"):
        WhiteningBesideFlow(4, flow_weight=weight).fit(X)
