import numpy as np
import pytest
import torch

from bertflow.arrays import as_matrix, choose_device, cosine_of_pairs, unit_rows
from bertflow.errors import InputError

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]


@pytest.mark.parametrize(
    "x",
    [
        ROWS,
        tuple(map(tuple, ROWS)),
        np.array(ROWS),
        np.array(ROWS, dtype=np.float16),
        np.array(ROWS, order="F"),
        torch.tensor(ROWS),
        torch.tensor(ROWS, dtype=torch.float16),
        torch.tensor(ROWS, dtype=torch.bfloat16),
        torch.tensor(ROWS, requires_grad=True),
        [np.array(row) for row in ROWS],
    ],
    ids=str,
)
def test_lists_arrays_and_tensors_become_the_same_matrix(x):
    matrix = as_matrix(x)
    assert isinstance(matrix, np.ndarray)
    assert matrix.dtype in (np.float32, np.float64)
    np.testing.assert_array_equal(matrix, ROWS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_and_float64_stay_and_are_not_copied(dtype):
    x = np.ones((3, 2), dtype=dtype)
    assert as_matrix(x) is x
    tensor = torch.ones(3, 2, dtype=torch.float64)
    assert as_matrix(tensor).dtype == np.float64


def test_whole_numbers_and_booleans_become_float32():
    assert as_matrix([[1, 2]]).dtype == np.float32
    assert as_matrix(np.array([[True, False]])).tolist() == [[1.0, 0.0]]


def test_memory_map(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array(ROWS, dtype=np.float32))
    np.testing.assert_array_equal(as_matrix(np.load(path, mmap_mode="r")), ROWS)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_other_than_two_axes_is_refused(shape):
    with pytest.raises(InputError, match=r"vectors must have two axes \(n, d\)"):
        as_matrix(np.ones(shape), "vectors")


@pytest.mark.parametrize(
    "x", [[["a", "b"]], [[1.0], [1.0, 2.0]], object(), [[object()]]], ids=["words", "ragged", "object", "objects"]
)
def test_what_is_not_numbers_is_refused(x):
    with pytest.raises(InputError, match=r"x must be an \(n, d\) array of numbers"):
        as_matrix(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_row_is_named(bad):
    x = np.ones((5, 3))
    x[2, 1] = x[4, 0] = bad
    with pytest.raises(InputError, match=r"in 2 row\(s\), first in row 2"):
        as_matrix(x)


def test_too_few_rows():
    with pytest.raises(InputError, match=r"x has 0 row\(s\); at least 1"):
        as_matrix(np.ones((0, 3)))
    with pytest.raises(InputError, match=r"x has 2 row\(s\); at least 3"):
        as_matrix(np.ones((2, 3)), min_rows=3)


def test_choose_device():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(torch.device("cpu")) == torch.device("cpu")
    assert choose_device().type in ("cpu", "cuda", "mps")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x"])
def test_unknown_device(name):
    with pytest.raises(InputError, match="is not a device; use"):
        choose_device(name)


@pytest.mark.parametrize(
    ("name", "there"), [("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())]
)
def test_absent_device(name, there):
    if there:
        pytest.skip(f"{name} is here")
    with pytest.raises(InputError, match=f"Device '{name}' is not available here"):
        choose_device(name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows(dtype):
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(dtype)
    x[3] = 0
    unit = unit_rows(x)
    assert unit.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 1, 1, 0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(x, axis=1, keepdims=True), x, atol=1e-6)


def test_cosine_of_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 8, 5))
    expected = [x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(cosine_of_pairs(a, b), expected)
    np.testing.assert_allclose(cosine_of_pairs(a, a * 3), 1)
    np.testing.assert_allclose(cosine_of_pairs(a, -a), -1)
