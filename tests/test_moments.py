import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.moments import Moments


def assert_same(a: Moments, b: Moments, rtol: float = 1e-10) -> None:
    assert a.count == b.count
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12)
    np.testing.assert_allclose(a.scatter, b.scatter, rtol=rtol, atol=rtol * np.abs(b.scatter).max())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e8])
def test_any_partition_and_any_merge_order_give_one_pass(seed, offset):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rng.integers(2, 400), 5)) * rng.uniform(0.1, 10, size=5) + offset
    cuts = np.sort(rng.integers(0, len(rows) + 1, size=rng.integers(0, 12)))  # repeated cuts make empty parts
    parts = [Moments().add(part) for part in np.split(rows[rng.permutation(len(rows))], cuts)]
    while len(parts) > 1:
        other = parts.pop(rng.integers(len(parts)))
        parts[rng.integers(len(parts))].merge(other)
    # a mean near 1e8 has a rounding of 1e-8 in float64, which is all that may be lost
    assert_same(parts[0], Moments().add(rows), rtol=1e-10 if abs(offset) < 1e8 else 1e-6)


def test_agrees_with_numpy_across_blocks():
    rows = np.random.default_rng(0).normal(size=(9001, 4))
    moments = Moments().add(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance(), np.cov(rows.T, ddof=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance(ddof=1), np.cov(rows.T), atol=1e-12)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), atol=1e-12)


def test_huge_mean_costs_no_digits():
    rows = np.random.default_rng(0).integers(-8, 8, size=(5000, 3)).astype(np.float64)  # exact after the shift
    moments = Moments()
    for batch in np.array_split(rows + 1e8, 7):
        moments.add(batch)
    np.testing.assert_allclose(moments.covariance(), np.cov(rows.T, ddof=0), rtol=1e-7, atol=1e-6)


def test_a_constant_has_exactly_no_variance_however_it_is_cut():
    rows = np.full((1000, 2), 0.1, dtype=np.float32)
    moments = Moments()
    for batch in np.array_split(rows, 13):
        moments.add(batch)
    assert not moments.scatter.any()
    assert moments.mean.tolist() == [float(np.float32(0.1))] * 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, bool])
def test_narrow_types_are_summed_in_float64(dtype):
    rows = (np.random.default_rng(0).normal(size=(3000, 3)) * 3).astype(dtype)
    assert_same(Moments().add(rows), Moments().add(rows.astype(np.float64)))


@pytest.mark.parametrize("scale", [1e-30, 1e20, 1e38])
def test_extreme_scales_of_float32(scale):
    rows = np.random.default_rng(0).uniform(-1, 1, size=(50, 3))
    small = (rows * scale).astype(np.float32)
    np.testing.assert_allclose(Moments().add(small).variance / scale / scale, rows.var(axis=0), rtol=1e-5)


def test_merge_leaves_the_other_alone_and_shares_nothing():
    other = Moments().add(np.eye(3))
    before = other.scatter.copy()
    mine = Moments().merge(other)
    mine.add(np.ones((4, 3)))
    assert other.count == 3
    np.testing.assert_array_equal(other.scatter, before)


def test_merge_with_itself_doubles_the_count():
    moments = Moments().add(np.eye(3))
    covariance = moments.covariance()
    moments.merge(moments)
    assert moments.count == 6
    np.testing.assert_allclose(moments.covariance(), covariance)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_bad_rows_are_refused_and_change_nothing(bad):
    moments = Moments().add(np.eye(3))
    batch = np.zeros((5000, 3))
    batch[-1, 1] = bad
    with pytest.raises(InputError, match="NaN, infinity or values"):
        moments.add(batch)
    assert_same(moments, Moments().add(np.eye(3)))


def test_means_too_far_apart_are_refused_and_change_nothing():
    moments = Moments().add(np.zeros((2, 2)))
    with pytest.raises(InputError, match="exceed float64"):
        moments.merge(Moments().add(np.full((2, 2), 1e200)))
    assert moments.count == 2
    assert not moments.scatter.any()


@pytest.mark.parametrize("batch", [[1.0, 2.0], [[["a"]]], [["a", "b"]], [[1j, 2j]]])
def test_what_is_no_matrix_of_real_numbers_is_refused(batch):
    with pytest.raises(InputError, match=r"\(n, d\)"):
        Moments().add(batch)


def test_width_mismatch_and_too_few_rows():
    with pytest.raises(InputError, match="2 dimensions cannot join rows of 3"):
        Moments().add(np.eye(3)).add(np.eye(2))
    with pytest.raises(InputError, match="add at least 1"):
        Moments().covariance()
    with pytest.raises(InputError, match="add at least 2"):
        Moments().add(np.ones((1, 2))).covariance(ddof=1)


def test_no_rows_change_nothing():
    moments = Moments().add(np.eye(3)).add(np.empty((0, 3)))
    assert moments.count == 3
