import doctest
import importlib
import pickle
import pkgutil

import joblib
import numpy as np
import pytest
import safetensors.numpy
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import bertflow.calibrators
from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.errors import InputError
from bertflow.flows import PRESETS


def bent(n=400, d=6, seed=0, dtype=np.float64):
    """Correlated rows that no Gaussian fits, with a mean far from 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[:, 1::2] = 0.4 * x[:, 1::2] + x[:, 0 : d - d % 2 : 2] ** 2
    return (x + 3).astype(dtype)


def small(**settings):
    return FlowCalibrator(**{"levels": 2, "depth": 2, "width": 8, "random_state": 0, "device": "cpu"} | settings)


@pytest.fixture(scope="module")
def fitted():
    return small().fit(bent())


@pytest.fixture(
    scope="module",
    params=[
        (coupling, permutation, dtype)
        for coupling in ("additive", "affine")
        for permutation in ("reverse", "random", "linear")
        for dtype in (np.float32, np.float64)
    ],
    ids=lambda param: f"{param[0]}-{param[1]}-{param[2].__name__}",
)
def variant(request):
    """A fitted calibrator of every kind, and its rows."""
    coupling, permutation, dtype = request.param
    x = bent(dtype=dtype)
    kind = {"coupling": coupling, "permutation": permutation, "width": np.int64(8)}
    return small(preset="paper", random_state=7, **kind).fit(x), x


@parametrize_with_checks(
    [small(levels=1, depth=1, width=4), small(preset="paper", coupling="affine", permutation="linear", width=4)]
)
def test_sklearn_contract(estimator, check):
    check(estimator)


def test_read_only_memory_maps_fit_without_a_warning(fitted, tmp_path):
    np.save(tmp_path / "x.npy", bent())
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    torch.set_warn_always(True)  # torch tells of read-only arrays once a process
    try:
        z = small().fit(x).transform(x)
    finally:
        torch.set_warn_always(False)
    np.testing.assert_array_equal(z, fitted.transform(bent()))


def test_transform_and_back(variant):
    calibrator, x = variant
    z = calibrator.transform(x)
    assert z.shape == x.shape
    assert z.dtype == x.dtype
    assert next(calibrator.flow_.parameters()).dtype == torch.from_numpy(x).dtype
    back = calibrator.inverse_transform(z)
    assert back.dtype == x.dtype
    np.testing.assert_allclose(back, x, atol=1e-9 if x.dtype == np.float64 else 1e-4)


def test_latents_are_standardised(fitted):
    z = fitted.transform(bent())
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.3)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.4)


def test_many_rows_come_out_as_few(fitted):
    x = bent(9000)
    np.testing.assert_allclose(fitted.transform(x)[-3:], fitted.transform(x[-3:]), atol=1e-12)
    np.testing.assert_allclose(fitted.score_samples(x)[-3:], fitted.score_samples(x[-3:]), atol=1e-12)


def test_scores_are_log_densities(fitted):
    x = bent(seed=1)
    scores = fitted.score_samples(x)
    assert scores.shape == (400,)
    assert fitted.score(x) == pytest.approx(scores.mean())
    assert fitted.score(x) > fitted.score(x + 2)
    with torch.no_grad():
        np.testing.assert_array_equal(scores, fitted.flow_.log_prob(torch.from_numpy(x)).numpy())
    assert fitted.score_samples(x.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_the_density_integrates_to_one(coupling):
    calibrator = small(coupling=coupling, epochs=40).fit(bent(1000, 2))
    axis, step = np.linspace(-15, 25, 501, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert np.exp(calibrator.score_samples(grid)).sum() * step**2 == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_samples_resemble_the_data(coupling):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 4)) + [1, -2, 3, 10]
    drawn = small(coupling=coupling, epochs=40).fit(x).sample(8000)
    assert drawn.shape == (8000, 4)
    assert drawn.dtype == x.dtype
    ours, theirs = [(rows - x.mean(axis=0)) / x.std(axis=0) for rows in (drawn, x)]
    np.testing.assert_allclose(ours.mean(axis=0), 0, atol=0.2)
    np.testing.assert_allclose(np.cov(ours.T), np.cov(theirs.T), atol=0.3)  # correlations are up to 0.65


def test_an_integer_repeats_fit_and_sample():
    x = bent()
    one, same, other = (small(preset="paper", random_state=seed).fit(x) for seed in (3, np.int64(3), 4))
    np.testing.assert_array_equal(one.transform(x), same.transform(x))
    np.testing.assert_array_equal(one.sample(5), same.sample(5))
    assert np.abs(one.transform(x) - other.transform(x)).max() > 1e-3


def test_a_random_state_moves_on_and_none_differs_each_time():
    x = bent()
    shared = np.random.RandomState(0)
    first, second = (small(preset="paper", random_state=shared).fit(x).transform(x) for _ in range(2))
    again = small(preset="paper", random_state=np.random.RandomState(0)).fit(x).transform(x)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - second).max() > 1e-3
    free = small(preset="paper", random_state=None).fit(x)
    assert np.abs(free.sample(5) - free.sample(5)).max() > 1e-3


def test_global_generators_are_not_touched():
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    calibrator = small().fit(bent())
    calibrator.sample(3)
    calibrator.transform(bent())
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_a_clone_is_unfitted_and_fits_alike(fitted):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        other.transform(bent())
    np.testing.assert_array_equal(other.fit(bent()).transform(bent()), fitted.transform(bent()))


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score_samples", "score"])
def test_unfitted_calibrators_say_so(method):
    with pytest.raises(NotFittedError):
        getattr(FlowCalibrator(), method)(bent())


def test_unfitted_calibrators_draw_nothing():
    with pytest.raises(NotFittedError):
        FlowCalibrator().sample()
    with pytest.raises(NotFittedError):
        FlowCalibrator().get_state()


def test_output_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(bent(50, 3), columns=["a", "b", "c"])
    calibrator = small().set_output(transform="pandas").fit(frame)
    assert calibrator.transform(frame).columns.tolist() == ["flowcalibrator0", "flowcalibrator1", "flowcalibrator2"]
    with pytest.raises(ValueError, match="feature names"):
        calibrator.transform(frame[["b", "a", "c"]])


def test_grid_search_by_likelihood():
    grid = {"coupling": ["additive", "affine"], "width": np.array([4, 8])}
    search = GridSearchCV(small(levels=1, preset="paper"), grid, cv=2).fit(bent())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(bent(seed=1)) == search.best_estimator_.score(bent(seed=1))


def test_settings_of_the_fit_are_used():
    def steps(**settings):
        return len(small(**settings).fit(bent(640)).history_.losses)

    assert steps(preset="paper") == 20
    assert steps(preset="paper", epochs=0.5) == 10
    assert steps(preset="paper", batch_size=64) == 10
    assert steps() == PRESETS["default"].min_steps
    rates = []
    small(preset="paper", learning_rate=1e-4, callbacks=[lambda log: rates.append(log["learning_rate"])]).fit(bent(64))
    assert rates == [1e-4] * 2


def test_verbose_shows_a_bar(capsys):
    small(verbose=True).fit(bent())
    assert "fitting the flow" in capsys.readouterr().err


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_fits_where_gradients_are_off(fitted, context):
    with context():
        calibrator = small().fit(bent())
    np.testing.assert_array_equal(calibrator.transform(bent()), fitted.transform(bent()))


def test_pickle_and_joblib_keep_the_map(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "flow.joblib")
    for other in (joblib.load(tmp_path / "flow.joblib"), pickle.loads(pickle.dumps(fitted))):  # noqa: S301
        np.testing.assert_array_equal(other.transform(bent()), fitted.transform(bent()))
        np.testing.assert_array_equal(other.sample(3), fitted.sample(3))


def test_state_round_trip_gives_the_same_latents(variant):
    calibrator, x = variant
    settings, arrays = calibrator.get_state()
    assert not {"device", "callbacks", "verbose"} & set(settings["params"])
    loaded = Calibrator.from_state(settings, safetensors.numpy.load(safetensors.numpy.save(arrays)), device="cpu")
    assert isinstance(loaded, FlowCalibrator)
    assert loaded.device == "cpu"
    assert loaded.get_params() == calibrator.get_params()
    z = calibrator.transform(x)
    np.testing.assert_array_equal(loaded.transform(x), z)
    np.testing.assert_array_equal(loaded.inverse_transform(z), calibrator.inverse_transform(z))
    np.testing.assert_array_equal(loaded.score_samples(x), calibrator.score_samples(x))
    np.testing.assert_array_equal(loaded.sample(4), calibrator.sample(4))


def test_a_wrong_state_is_refused(fitted):
    settings, arrays = fitted.get_state()
    key = "levels.0.0.actnorm.loc"
    with pytest.raises(InputError, match=f"'{key}' is missing"):
        Calibrator.from_state(settings, {name: value for name, value in arrays.items() if name != key})
    with pytest.raises(InputError, match=r"'levels\.9\.loc' is not expected"):
        Calibrator.from_state(settings, arrays | {"levels.9.loc": np.zeros(3)})
    with pytest.raises(InputError, match=rf"'{key}' has shape \(5,\); \(6,\) was expected"):
        Calibrator.from_state(settings, arrays | {key: np.zeros(5)})
    with pytest.raises(InputError, match="has shape"):
        Calibrator.from_state(settings | {"n_features_in": 7}, arrays)
    with pytest.raises(InputError, match="not what this version wrote"):
        Calibrator.from_state(settings | {"params": {"colour": "red"}}, arrays)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": 0}, "levels must be an integer of at least 1"),
        ({"coupling": "spline"}, "Unknown coupling"),
        ({"permutation": "none"}, "Unknown permutation"),
        ({"preset": "fast"}, "Unknown preset 'fast'"),
        ({"epochs": 0}, "epochs must be positive"),
        ({"device": "abacus"}, "'abacus' is not a device"),
    ],
)
def test_bad_parameters_are_named_at_fit(settings, message):
    with pytest.raises(InputError, match=message):
        small(**settings).fit(bent())


def test_wrong_latents_are_refused(fitted):
    with pytest.raises(InputError, match="Latents have 5 dimensions; this calibrator gives 6"):
        fitted.inverse_transform(np.zeros((2, 5)))


AWKWARD = {
    "constant": np.full((40, 4), 0.1),
    "zeros": np.zeros((40, 4)),
    "one constant dimension": bent(40, 4) * [1, 0, 1, 1],
    "nearly constant dimension": bent(40, 4) * [1, 1e-9, 1, 1] + [0, 1, 0, 0],
    "duplicates": np.repeat(bent(5, 4), 8, axis=0),
    "two rows": bent(2, 4),
    "fewer rows than dimensions": bent(6, 20),
    "tiny": bent(40, 4) * 1e-30,
    "huge": bent(40, 4) * 1e30,
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_data_leave_everything_finite(case, preset):
    x = AWKWARD[case].astype(np.float32)
    calibrator = small(preset=preset).fit(x)
    z = calibrator.transform(x)
    for value in (z, calibrator.score_samples(x), calibrator.inverse_transform(z), calibrator.sample(20)):
        assert np.isfinite(value).all()
    assert all(np.isfinite(array).all() for array in calibrator.get_state()[1].values())


def test_rows_that_overflow_are_named_instead_of_nan():
    x = bent(dtype=np.float32)
    calibrator = small(coupling="affine", permutation="linear").fit(x * 1e-3)
    x[[3, 8]] = 3e38
    for method in (calibrator.transform, calibrator.inverse_transform):
        with pytest.raises(InputError, match=r"2 row\(s\), first row 3, .* float32 overflows"):
            method(x)
    assert (calibrator.score_samples(x)[[3, 8]] == -np.inf).all()


@pytest.mark.parametrize("module", [name for _, name, _ in pkgutil.iter_modules(bertflow.calibrators.__path__)])
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(f"bertflow.calibrators.{module}")).failed == 0
