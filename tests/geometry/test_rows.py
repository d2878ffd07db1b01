import numpy as np
import pytest
import torch

from bertflow.errors import InputError
from bertflow.geometry import rows as module
from bertflow.geometry.rows import blocks, moments_of, sample_indices, sample_rows

X = np.random.default_rng(0).normal(size=(50, 3))


class Batches:
    """Can be read again and again, like shards on disk."""

    def __init__(self, x, size):
        self.x, self.size = x, size

    def __iter__(self):
        return (self.x[i : i + self.size] for i in range(0, len(self.x), self.size))


HOLDERS = [X, X.astype(np.float32), torch.from_numpy(X), Batches(X, 7), [X[:20], X[20:]]]


@pytest.mark.parametrize("rows", HOLDERS, ids=lambda rows: type(rows).__name__)
def test_whatever_holds_the_rows_they_are_the_same(monkeypatch, rows):
    monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    found = list(blocks(rows))
    assert max(map(len, found)) <= 16
    np.testing.assert_allclose(np.concatenate(found), X, rtol=1e-6)
    np.testing.assert_allclose(sample_rows(rows, 12, seed=3), sample_rows(X, 12, seed=3), rtol=1e-6)
    plain, units = moments_of(rows)
    np.testing.assert_allclose(plain.covariance(), np.cov(X.T, bias=True), rtol=1e-5)
    np.testing.assert_allclose(np.trace(units.covariance()) + units.mean @ units.mean, 1)


def test_a_memory_map_is_read_in_blocks(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    held = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_allclose(np.concatenate(list(blocks(held))), X, atol=5e-3)


def test_the_sample_depends_on_the_seed_alone():
    assert sample_indices(1000, 10, seed=1).tolist() == sample_indices(1000, 10, seed=1).tolist()
    assert sample_indices(1000, 10, seed=1).tolist() != sample_indices(1000, 10, seed=2).tolist()
    drawn = sample_indices(1000, 400)
    assert (np.diff(drawn) > 0).all()
    assert sample_indices(5, 10).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((x for x in [X]), "read more than once"),
        (7, "array or an iterable"),
        (X[:1], "1 row"),
        ([X, X[:, :2]], "dimensions"),
        (np.full((3, 2), np.nan), "NaN"),
        ([], "0 row"),
    ],
    ids=["generator", "number", "one row", "two widths", "nan", "nothing"],
)
def test_what_cannot_be_read_is_refused(rows, message):
    with pytest.raises(InputError, match=message):
        moments_of(rows)
