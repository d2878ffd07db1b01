from math import exp, log

import numpy as np
import pytest
from scipy.special import iv

from bertflow.errors import InputError
from bertflow.geometry import sphere
from bertflow.geometry.sphere import alignment, uniform_value, uniformity


def test_alignment_in_closed_form():
    a, b = np.array([[3.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 5.0], [0.0, -1.0]])
    assert alignment(a, a) == 0
    assert alignment(a, b) == pytest.approx((2 + 4) / 2)  # at a right angle, and opposite
    assert alignment(a, b, power=1) == pytest.approx((2**0.5 + 2) / 2)
    with pytest.raises(InputError, match="as many"):
        alignment(a, b[:1])


@pytest.mark.parametrize("cells", [10, 2**21])
def test_uniformity_in_closed_form(monkeypatch, cells):
    monkeypatch.setattr(sphere, "_CELLS", cells)
    assert uniformity(np.array([[2.0, 0.0], [0.0, 1.0]])) == pytest.approx(-4)
    assert uniformity(np.array([[2.0, 0.0], [-1.0, 0.0]]), t=1) == pytest.approx(-4)
    assert uniformity(np.ones((4, 3))) == pytest.approx(0)
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    assert uniformity(axes) == pytest.approx(log((4 * exp(-4) + exp(-8)) / 5))


def test_the_value_of_evenly_spread_directions():
    assert uniform_value(2) == pytest.approx(-4 + log(iv(0, 4)))  # the circle: a Bessel function
    n, angles = 2000, 2 * np.pi * np.arange(2000) / 2000
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert exp(uniformity(circle)) == pytest.approx((n * exp(uniform_value(2)) - 1) / (n - 1))  # no row with itself
    x = np.random.default_rng(0).normal(size=(1500, 30))
    assert uniformity(x) == pytest.approx(uniform_value(30), abs=0.01)
    assert uniform_value(10**6) == pytest.approx(-4, abs=1e-4)


def test_one_row_has_no_pairs():
    with pytest.raises(InputError, match="at least 2"):
        uniformity(np.ones((1, 3)))
