import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry.dimensions import rogue_dimensions


def test_a_constant_dimension_makes_the_whole_cosine():
    rows = np.array([[1.0, 1.0], [1.0, -1.0]] * 10)
    found = rogue_dimensions(rows)
    assert found.mean_cosine == pytest.approx(0.5)
    assert found.top[0].index == 0
    assert found.top[0].share == pytest.approx(1)
    assert found.top[0].deviation == pytest.approx(0)
    assert found.outliers == (0,)
    assert found.half == 1


def test_a_rogue_dimension_in_noise():
    x = np.random.default_rng(0).normal(size=(2000, 50))
    x[:, 17] += 10
    found = rogue_dimensions(x, top=3)
    assert found.top[0].index == 17
    assert found.top[0].mean == pytest.approx(10, abs=0.1)
    assert found.top[0].share > 0.99
    assert found.outliers == (17,)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert found.mean_cosine == pytest.approx((units @ units.T).mean())
    assert rogue_dimensions(x, threshold=11).outliers == ()
    assert found.to_dict()["top"][0]["index"] == 17


def test_dimensions_that_take_part_alike():
    found = rogue_dimensions(np.ones((3, 10)) + np.eye(3, 10) * 1e-9)
    assert found.half == 5
    assert [one.share for one in found.top] == pytest.approx([0.1] * 5)


def test_rows_that_cancel_have_no_mean_cosine():
    with pytest.raises(InputError, match="exactly zero"):
        rogue_dimensions(np.array([[1.0, 2.0], [-1.0, -2.0]]))
