import logging

import numpy as np
import pytest
import safetensors.numpy
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bertflow.calibrators import Calibrator, Identity, RemoveTopComponents, Standardize, Whitening
from bertflow.errors import InputError
from bertflow.moments import Moments
from bertflow.recipes import calibrator_of

ALL = [
    Identity(),
    Standardize(),
    RemoveTopComponents(),
    RemoveTopComponents(k=2, center=False),
    RemoveTopComponents(k=2, standardize=True),
    Whitening(),
    Whitening(n_components=2),
    Whitening(shrinkage=0.1),
    Whitening(method="zca"),
    Whitening(alpha=0.5),
    Whitening(alpha=0.75, shrinkage=0.5),
    Whitening(alpha=0),
]
every = pytest.mark.parametrize("calibrator", ALL, ids=str)


def cone(n: int = 400, d: int = 12, seed: int = 0) -> np.ndarray:
    """Vectors as pretrained encoders give them: correlated dimensions and a mean far from 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ (rng.normal(size=(d, d)) * np.logspace(0, -1, d)) + rng.normal(size=d) * 3


def layer_norm(x: np.ndarray) -> np.ndarray:
    """What a LayerNorm does: the result sums to 0, so that one direction is dead."""
    x = x - x.mean(axis=1, keepdims=True)
    return (x / x.std(axis=1, keepdims=True)).astype(np.float32)


@parametrize_with_checks(
    [Identity(), Standardize(), RemoveTopComponents(), Whitening(), Whitening(alpha=0.5, shrinkage=0.1)]
)
def test_sklearn_contract(estimator, check):
    check(estimator)


@every
def test_is_one_affine_map_with_a_generalised_inverse(calibrator):
    x = cone()
    fitted = clone(calibrator).fit(x)
    z = fitted.transform(x)
    np.testing.assert_allclose(z, (x - fitted.mean_) @ fitted.kernel_, atol=1e-12)
    np.testing.assert_allclose(fitted.kernel_ @ fitted.inverse_kernel_ @ fitted.kernel_, fitted.kernel_, atol=1e-9)
    np.testing.assert_allclose(fitted.transform(fitted.inverse_transform(z)), z, atol=1e-9)
    if np.linalg.matrix_rank(fitted.kernel_) == x.shape[1]:
        np.testing.assert_allclose(fitted.inverse_transform(z), x, atol=1e-9)


@every
def test_as_affine_is_the_whole_map(calibrator):
    x = cone()
    fitted = clone(calibrator).fit(x.astype(np.float32))
    matrix, bias = fitted.as_affine()
    assert matrix.dtype == bias.dtype == np.float64
    assert matrix.shape == (12, len(bias)) == (12, fitted.transform(x).shape[1])
    np.testing.assert_allclose(x @ matrix + bias, fitted.transform(x), atol=1e-12)
    matrix *= 0  # the caller's own copy
    assert fitted.transform(x).any()


@pytest.mark.parametrize(
    "name", ["raw", "none", "sn", "natsv-2", "sn+natsv-2", "whitening", "whitening-3", "whitening-half"]
)
def test_every_affine_recipe_is_one_affine_map(name):
    x = cone()
    fitted = calibrator_of(name).fit(x)
    matrix, bias = fitted.as_affine()
    np.testing.assert_allclose(x @ matrix + bias, fitted.transform(x), atol=1e-12)


def test_as_affine_of_an_unfitted_calibrator_is_refused():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        Whitening().as_affine()


@every
def test_partial_fit_and_fit_moments_are_exact(calibrator):
    x = cone()
    whole = clone(calibrator).fit(x)
    stream = clone(calibrator)
    for batch in np.array_split(x, [1, 7, 200]):
        stream.partial_fit(batch)
    left, right = Moments().add(x[:90]), Moments().add(x[90:])
    merged = clone(calibrator).fit_moments(right.merge(left))
    for other in (stream, merged):
        np.testing.assert_allclose(other.transform(x), whole.transform(x), atol=1e-8)
    np.testing.assert_allclose(clone(calibrator).fit(-x).partial_fit(x).mean_, whole.mean_ * 0, atol=1e-12)


@every
def test_state_round_trip_gives_the_same_map(calibrator):
    x = cone().astype(np.float32)
    fitted = clone(calibrator).fit(x)
    settings, arrays = fitted.get_state()
    assert all(array.flags.c_contiguous for array in arrays.values())
    loaded = Calibrator.from_state(settings, safetensors.numpy.load(safetensors.numpy.save(arrays)))
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.transform(x), fitted.transform(x))
    z = fitted.transform(x)
    np.testing.assert_array_equal(loaded.inverse_transform(z), fitted.inverse_transform(z))
    with pytest.raises(InputError, match="was loaded"):
        loaded.partial_fit(x)


@every
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e20, 1e36])
def test_extreme_scales_in_float32(calibrator, scale):
    x = cone()
    small = (x * scale).astype(np.float32)
    fitted = clone(calibrator).fit(small)
    z = fitted.transform(small)
    assert z.dtype == np.float32
    assert np.isfinite(z).all()
    assert np.isfinite(fitted.inverse_transform(z)).all()
    if scale > 1e-40:  # below, float32 itself has no digits left
        expected = clone(calibrator).fit(x).transform(x)
        size = np.abs(expected).max()
        z = z * (size / np.abs(z).max())
        np.testing.assert_allclose(np.abs(z), np.abs(expected), atol=1e-3 * size)


@every
def test_rows_of_one_value_give_zeros_or_themselves(calibrator):
    x = np.full((5, 4), 0.1, dtype=np.float32)
    z = clone(calibrator).fit(x).transform(x)
    assert np.isfinite(z).all()
    if isinstance(calibrator, Identity):
        np.testing.assert_array_equal(z, x)
    else:
        np.testing.assert_allclose(z, 0, atol=1e-6)


@every
def test_many_rows_come_out_as_one_by_one(calibrator):
    x = cone(n=9000, d=4).astype(np.float32)
    fitted = clone(calibrator).fit(x)
    np.testing.assert_allclose(fitted.transform(x)[-1], fitted.transform(x[-1:])[0], rtol=1e-6)


@every
def test_an_offset_beyond_float32_is_no_matter_in_float64(calibrator):
    if calibrator.get_params().get("center", True) and not isinstance(calibrator, Identity):
        x = cone()
        far = clone(calibrator).fit(x + 1e8).transform(x + 1e8)
        np.testing.assert_allclose(far, clone(calibrator).fit(x).transform(x), atol=1e-4)


def test_identity_changes_nothing():
    x = cone().astype(np.float32)
    np.testing.assert_array_equal(Identity().fit(x).transform(x), x)


def test_standardize_agrees_with_scikit_learn():
    x = cone() * np.logspace(-2, 2, 12)
    np.testing.assert_allclose(Standardize().fit(x).transform(x), StandardScaler().fit_transform(x), atol=1e-9)


@pytest.mark.parametrize("calibrator", [Standardize(), RemoveTopComponents(standardize=True)], ids=str)
def test_a_dimension_constant_but_for_rounding_becomes_zero(calibrator):
    x = cone().astype(np.float32)
    x[:, 3] = 7.0
    x[::2, 5] = np.nextafter(np.float32(7.0), np.float32(8.0))
    x[1::2, 5] = 7.0
    fitted = calibrator.fit(x)
    unseen = cone(seed=1).astype(np.float32)
    assert not fitted.transform(unseen)[:, [3, 5]].any()
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(x))[:, [3, 5]], 7.0, rtol=1e-6)


@pytest.mark.parametrize("k", [0, 1, 4, 11])
def test_removed_directions_are_the_top_principal_ones(k):
    x = cone()
    z = RemoveTopComponents(k).fit(x).transform(x)
    centred = x - x.mean(axis=0)
    top = PCA(n_components=12).fit(x).components_[:k]
    np.testing.assert_allclose(z, centred - centred @ top.T @ top, atol=1e-9)
    np.testing.assert_allclose(z @ top.T, 0, atol=1e-9)


def test_uncentred_removal_is_the_svd_of_the_raw_rows():
    x = cone()
    top = np.linalg.svd(x, full_matrices=False)[2][:2]
    np.testing.assert_allclose(RemoveTopComponents(2, center=False).fit(x).transform(x), x - x @ top.T @ top, atol=1e-9)


def test_standardized_removal_is_the_composition():
    x = cone()
    steps = RemoveTopComponents(3).fit(standard := Standardize().fit(x).transform(x)).transform(standard)
    np.testing.assert_allclose(RemoveTopComponents(3, standardize=True).fit(x).transform(x), steps, atol=1e-9)


def test_removal_takes_no_arbitrary_direction_where_rows_span_few():
    x = np.zeros((50, 6))
    x[:, :2] = cone(50, 2)
    unseen = np.eye(6)
    fitted = RemoveTopComponents(5).fit(x)
    np.testing.assert_allclose(fitted.transform(unseen)[2:, 2:], np.eye(4), atol=1e-9)


@pytest.mark.parametrize("method", ["pca", "zca"])
def test_whitened_covariance_is_the_identity(method):
    x = cone()
    z = Whitening(method=method).fit(x).transform(x)
    np.testing.assert_allclose(np.cov(z.T, ddof=0), np.eye(12), atol=1e-9)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-9)


def test_pca_whitening_agrees_with_scikit_learn():
    x = cone()
    ours, theirs = Whitening(n_components=5).fit(x), PCA(n_components=5, whiten=True).fit(x)
    expected = theirs.transform(x) * np.sqrt(len(x) / (len(x) - 1))  # theirs divides by n − 1
    np.testing.assert_allclose(np.abs(ours.transform(x)), np.abs(expected), atol=1e-8)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(x)), theirs.inverse_transform(theirs.transform(x)))
    assert ours.get_feature_names_out().tolist() == [f"whitening{i}" for i in range(5)]


@pytest.mark.parametrize("alpha", [0, 0.25, 0.5, 1])
def test_alpha_says_how_far_the_space_is_flattened(alpha):
    """Variances along the principal axes become their power 1 - alpha."""
    x = cone()
    variances = np.linalg.eigvalsh(np.cov(x.T, ddof=0))[::-1]
    z = Whitening(alpha=alpha).fit(x).transform(x)
    np.testing.assert_allclose(np.cov(z.T, ddof=0), np.diag(variances ** (1 - alpha)), atol=1e-8)
    kept = Whitening(3, alpha=alpha).fit(x).transform(x)
    np.testing.assert_allclose(kept, z[:, :3], atol=1e-12)


def test_alpha_of_zero_changes_no_distance():
    x = cone()
    z = Whitening(alpha=0).fit(x).transform(x)
    np.testing.assert_allclose(z @ z.T, (x - x.mean(0)) @ (x - x.mean(0)).T, atol=1e-8)


@pytest.mark.parametrize("dimension", [1, 5, 12])
def test_reduced_is_what_was_fitted_with_so_many_components(dimension):
    x = cone()
    whole, small = Whitening(alpha=0.5).fit(x), Whitening(dimension, alpha=0.5).fit(x)
    cut = whole.reduced(dimension)
    np.testing.assert_allclose(cut.transform(x), small.transform(x), atol=1e-12)
    np.testing.assert_allclose(cut.inverse_transform(cut.transform(x)), small.inverse_transform(small.transform(x)))
    assert (cut.dim, cut.get_params(), whole.dim) == (dimension, small.get_params(), 12)


def test_reduced_to_what_cannot_be_is_refused():
    x = cone()
    with pytest.raises(InputError, match="dimension is 13"):
        Whitening().fit(x).reduced(13)
    with pytest.raises(InputError, match="Only the dimensions of method='pca' are ordered"):
        Whitening(method="zca").fit(x).reduced(2)
    with pytest.raises(NotFittedError):
        Whitening().reduced(2)


def test_zca_is_symmetric_and_has_the_cosines_of_pca():
    x = cone()
    pca, zca = Whitening().fit(x), Whitening(method="zca").fit(x)
    np.testing.assert_allclose(zca.kernel_, zca.kernel_.T, atol=1e-12)
    np.testing.assert_allclose(pca.transform(x) @ pca.transform(x).T, zca.transform(x) @ zca.transform(x).T, atol=1e-8)


def test_signs_do_not_depend_on_the_order_of_rows():
    x = cone()
    np.testing.assert_allclose(Whitening().fit(x).kernel_, Whitening().fit(x[::-1]).kernel_, atol=1e-8)
    kernel = Whitening().fit(x).kernel_
    assert (kernel[np.abs(kernel).argmax(axis=0), np.arange(12)] > 0).all()


@pytest.mark.parametrize("precision", [np.float32, np.float16])
@pytest.mark.parametrize("method", ["pca", "zca"])
def test_the_direction_a_layer_norm_removes_is_not_amplified(precision, method, caplog):
    caplog.set_level(logging.INFO, logger="bertflow")
    rows, unseen = (layer_norm(cone(3000, 16, seed)).astype(precision).astype(np.float32) for seed in (0, 1))
    fitted = Whitening(method=method).fit(rows)
    assert np.linalg.matrix_rank(fitted.kernel_) == 15
    noise = np.random.default_rng(2).uniform(-1, 1, size=unseen.shape) * np.finfo(precision).eps
    change = fitted.transform(unseen * (1 + noise)) - fitted.transform(unseen)
    assert np.abs(change).max() < 100 * np.finfo(precision).eps
    if method == "pca":
        assert not fitted.transform(rows)[:, -1].any()
        assert "1 of 16 dimensions to 0" in caplog.text


def test_fewer_rows_than_dimensions():
    x = cone(n=8, d=20).astype(np.float32)
    z = Whitening().fit(x).transform(x)
    np.testing.assert_allclose(np.cov(z[:, :7].T, ddof=0), np.eye(7), atol=1e-4)
    assert not z[:, 7:].any()
    assert np.abs(Whitening().fit(x).transform(cone(50, 20, seed=1))).max() < 100


def test_shrinkage_keeps_every_direction_and_inverts():
    x, unseen = cone(n=8, d=20), cone(50, 20, seed=1)
    fitted = Whitening(shrinkage=0.1).fit(x)
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(unseen)), unseen, atol=1e-9)
    covariance = np.cov(x.T, ddof=0)
    shrunk = 0.9 * covariance + 0.1 * np.trace(covariance) / 20 * np.eye(20)
    np.testing.assert_allclose(fitted.kernel_.T @ shrunk @ fitted.kernel_, np.eye(20), atol=1e-9)


def test_tiny_shrinkage_is_as_safe_as_none():
    x = layer_norm(cone(3000, 16))
    np.testing.assert_allclose(Whitening(shrinkage=1e-12).fit(x).kernel_, Whitening().fit(x).kernel_, rtol=1e-6)


def test_output_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(cone(50, 3), columns=["a", "b", "c"])
    fitted = Whitening(n_components=2).set_output(transform="pandas").fit(frame)
    assert fitted.transform(frame).columns.tolist() == ["whitening0", "whitening1"]
    assert not hasattr(fitted.fit_moments(Moments().add(frame.to_numpy())), "feature_names_in_")


@pytest.mark.parametrize(
    ("calibrator", "message"),
    [
        (Whitening(n_components=0), "n_components is 0"),
        (Whitening(n_components=13), "from 1 to 12"),
        (Whitening(n_components=True), "n_components is True"),
        (Whitening(n_components=2.0), "n_components is 2.0"),
        (Whitening(n_components=2, method="zca"), "leave n_components out"),
        (Whitening(method="cholesky"), "'pca' or 'zca'"),
        (Whitening(shrinkage=1.5), "from 0 to 1"),
        (Whitening(shrinkage="auto"), "from 0 to 1"),
        (Whitening(alpha=1.5), "alpha is 1.5; it must be a number from 0 to 1"),
        (Whitening(alpha=-0.1), "from 0 to 1"),
        (Whitening(alpha=None), "alpha is None"),
        (RemoveTopComponents(k=12), "k is 12"),
        (RemoveTopComponents(k=-1), "k is -1"),
    ],
)
def test_bad_parameters_are_named_at_fit(calibrator, message):
    with pytest.raises(InputError, match=message):
        calibrator.fit(cone())


def test_too_few_moments_are_refused():
    with pytest.raises(InputError, match="At least 2 rows of 2 dimensions"):
        Whitening().fit_moments(Moments().add(np.ones((1, 4))))


@every
def test_saved_and_loaded(calibrator, tmp_path):
    x = cone()
    fitted = clone(calibrator).fit(x)
    again = Calibrator.from_pretrained(fitted.save_pretrained(tmp_path / "c"))
    np.testing.assert_array_equal(again.transform(x), fitted.transform(x))
    assert again.dim == fitted.dim == fitted.transform(x).shape[1]


def test_misshapen_state_is_refused():
    settings, arrays = Whitening().fit(cone()).get_state()
    with pytest.raises(InputError, match="'kernel' has shape"):
        Calibrator.from_state(settings, arrays | {"kernel": np.eye(3)})
    with pytest.raises(InputError, match="'mean' is missing"):
        Calibrator.from_state(settings, {k: v for k, v in arrays.items() if k != "mean"})
    with pytest.raises(InputError, match="'x' is not expected"):
        Calibrator.from_state(settings, arrays | {"x": np.eye(3)})
