"""Calibrators and texts in scikit-learn's own tools: pipelines, searches, tables, storage."""

import shutil
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bertflow import (
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    Part,
    RemoveTopComponents,
    SentenceVectors,
    Standardize,
    TokenTable,
    Whitening,
)
from bertflow.errors import InputError
from bertflow.integrations import sklearn as integration

FOOD = ["the cat and tea", "green tea", "tea then tea", "blue tea", "a tea and a tea", "red tea fast"]
TEXTS = [*FOOD, "the dog runs", "a dog runs fast", "the bird runs", "a bird sings", "the dog sat", "slow dog runs"]
LABELS = np.array(["food"] * 6 + ["animal"] * 6)
CALIBRATORS = [
    FlowCalibrator(epochs=2, random_state=0),
    Whitening(4),
    RemoveTopComponents(2),
    Standardize(),
    Identity(),
]


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6)) + 3


@pytest.fixture
def vectors(tiny_bert):
    return SentenceVectors(str(tiny_bert), device="cpu")


# --- calibrators


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_a_calibrator_in_a_pipeline_does_what_it_does_alone(x, calibrator):
    pipeline = make_pipeline(StandardScaler(), clone(calibrator)).fit(x)
    scaled = StandardScaler().fit_transform(x)
    np.testing.assert_allclose(pipeline.transform(x), clone(calibrator).fit(scaled).transform(scaled), rtol=1e-5)
    assert len(pipeline.get_feature_names_out()) == pipeline.transform(x).shape[1]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_out(x, calibrator, library):
    frames = pytest.importorskip(library, reason=f"a table of {library} needs pip install {library}")
    table = frames.DataFrame(x, **({"index": range(7, 207)} if library == "pandas" else {}))
    table.columns = list("abcdef")
    fitted = clone(calibrator).set_output(transform=library).fit(table)
    result = fitted.transform(table)
    assert isinstance(result, frames.DataFrame)
    assert list(result.columns) == list(fitted.get_feature_names_out())
    assert list(fitted.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(result.to_numpy(), fitted.set_output(transform="default").transform(table))
    if library == "pandas":
        assert list(result.index) == list(range(7, 207))


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_stored_calibrators_and_pipelines_come_back_exactly(x, calibrator, tmp_path):
    for fitted in (clone(calibrator).fit(x), make_pipeline(StandardScaler(), clone(calibrator)).fit(x)):
        joblib.dump(fitted, tmp_path / "stored")
        np.testing.assert_array_equal(joblib.load(tmp_path / "stored").transform(x), fitted.transform(x))


def test_grid_search_by_held_out_likelihood(x):
    flow, folds = FlowCalibrator(epochs=2, random_state=0), KFold(2)
    search = GridSearchCV(flow, {"levels": [1, 2]}, cv=folds).fit(x)
    held_out = [
        np.mean([clone(flow).set_params(levels=levels).fit(x[a]).score_samples(x[b]).mean() for a, b in folds.split(x)])
        for levels in (1, 2)
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], held_out)
    assert search.best_params_ == {"levels": 1 + int(np.argmax(held_out))}
    assert search.score(x) == pytest.approx(search.best_estimator_.score_samples(x).mean())


def test_grid_search_over_the_calibrator_of_a_pipeline(x):
    y = (x[:, 0] > x[:, 0].mean()).astype(int)
    pipeline = Pipeline([("calibrate", Whitening()), ("classify", KNeighborsClassifier(3))])
    grid = [
        {"calibrate": ["passthrough", Standardize(), FlowCalibrator(epochs=1, random_state=0)]},
        {"calibrate__n_components": [2, 6]},
    ]
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(x, y)
    assert len(search.cv_results_["params"]) == 5
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_calibrator_fitted_elsewhere_stays_as_it_is(x):
    """Fitted on plenty of unlabelled rows, it must not be fitted again on the few labelled ones."""
    whitening = Whitening().fit(x)
    pipeline = make_pipeline(FrozenEstimator(whitening), LogisticRegression()).fit(x[:20], np.arange(20) % 2)
    np.testing.assert_array_equal(pipeline[0].transform(x), whitening.transform(x))


def test_metadata_routing_asks_nothing_of_a_calibrator(x):
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = LogisticRegression().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(Whitening(), classifier)
        pipeline.fit(x, np.arange(200) % 2, sample_weight=np.ones(200))
        assert pipeline.predict(x).shape == (200,)


# --- sentences


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda texts: np.array(texts, dtype=object),
    "strings": np.array,
    "column": lambda texts: np.array(texts, dtype=object)[:, None],
    "generator": iter,
}


@pytest.mark.parametrize("hold", CONTAINERS.values(), ids=CONTAINERS)
def test_texts_come_in_any_container(vectors, tiny_bert, hold):
    found = vectors.fit(TEXTS).transform(hold(TEXTS))
    np.testing.assert_array_equal(found, Encoder(tiny_bert, device="cpu").encode(TEXTS))
    assert found.dtype == np.float32


def test_series_and_tables_of_one_column(vectors):
    pandas = pytest.importorskip("pandas", reason="a Series needs pip install pandas")
    series = pandas.Series(TEXTS, index=range(5, 17))
    expected = vectors.fit_transform(series)
    np.testing.assert_array_equal(expected, vectors.transform(TEXTS))
    table = vectors.set_output(transform="pandas").transform(series.to_frame())
    assert list(table.index) == list(range(5, 17))
    assert list(table.columns[:2]) == ["sentencevectors0", "sentencevectors1"]
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("one text", "Write \\[text\\]"),
        ([1, 2], "Text 0 is 1 of type int"),
        (["tea", None], "Text 1 is None"),
        ([], "no texts"),
        (np.array([["a", "b"]], dtype=object), "X has 2 columns"),
    ],
)
def test_what_is_not_text_is_refused(vectors, bad, message):
    with pytest.raises(InputError, match=message):
        vectors.fit(bad)


def test_fit_comes_first(vectors):
    with pytest.raises(NotFittedError):
        vectors.transform(TEXTS)
    with pytest.raises(InputError, match="leave out max_length"):
        SentenceVectors(Encoder("mini", device="cpu"), max_length=9).fit(TEXTS)


def test_settings_reach_the_encoder_and_clones_share_it(tiny_bert):
    step = SentenceVectors(str(tiny_bert), pooling="cls", max_length=8, device="cpu").fit(TEXTS)
    expected = Encoder(tiny_bert, "cls", max_length=8, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(step.transform(TEXTS), expected)
    assert clone(step).get_params() == step.get_params()
    assert clone(step)._encoder() is step._encoder()
    assert SentenceVectors(str(tiny_bert), device="cpu")._encoder() is not step._encoder()


def test_from_texts_to_labels(vectors, tmp_path):
    pipeline = make_pipeline(vectors, Standardize(), KNeighborsClassifier(1)).fit(TEXTS, LABELS)
    assert (pipeline.predict(TEXTS) == LABELS).all()
    assert np.isfinite(cross_val_score(pipeline, np.array(TEXTS, dtype=object), LABELS, cv=2)).all()
    cached = make_pipeline(vectors, Standardize(), KNeighborsClassifier(1), memory=str(tmp_path))
    assert (cached.fit(TEXTS, LABELS).predict(TEXTS) == LABELS).all()


def test_a_stored_pipeline_holds_the_name_and_not_the_weights(vectors, tiny_bert, tmp_path):
    pipeline = make_pipeline(vectors, Whitening(3), KNeighborsClassifier(1)).fit(TEXTS, LABELS)
    joblib.dump(pipeline, tmp_path / "stored")
    joblib.dump(vectors, tmp_path / "step")
    assert (tmp_path / "step").stat().st_size < 2000 < (tiny_bert / "model.safetensors").stat().st_size
    integration._loaded.cache_clear()
    again = joblib.load(tmp_path / "stored")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(again[:-1].transform(TEXTS), pipeline[:-1].transform(TEXTS))
    assert (again.predict(TEXTS) == LABELS).all()


def test_an_encoder_that_changed_under_its_name_is_noticed(tiny, tmp_path):
    place = shutil.copytree(tiny("bert"), tmp_path / "encoder")
    step = SentenceVectors(place, device="cpu").fit(TEXTS)
    joblib.dump(step, tmp_path / "stored")
    shutil.rmtree(place)
    shutil.copytree(tiny("roberta"), place)
    with pytest.warns(UserWarning, match="fitted with other weights"):
        joblib.load(tmp_path / "stored").transform(TEXTS)
    assert step.fit(TEXTS).transform(TEXTS).shape == (12, 16)


def test_a_loaded_encoder_works_but_is_not_stored(mini, tmp_path):
    step = SentenceVectors(mini).fit(TEXTS)
    np.testing.assert_array_equal(step.transform(TEXTS), mini.encode(TEXTS))
    with pytest.raises(InputError, match="A loaded Encoder is not stored with a pipeline"):
        joblib.dump(step, tmp_path / "stored")


@pytest.mark.parametrize(
    "options", [{"recipe": "best"}, {"recipe": "static-4"}, {"recipe": "flow@cls"}, {"view": TokenTable(8)}], ids=str
)
def test_a_recipe_or_a_view_is_fitted_on_the_texts(tiny_bert, sentences, tmp_path, options):
    copied = shutil.copytree(tiny_bert, tmp_path / "bert")
    pipeline = make_pipeline(SentenceVectors(str(copied), device="cpu", **options), LogisticRegression(max_iter=500))
    step = clone(pipeline).fit(sentences, np.arange(len(sentences)) % 2)[0]
    found = step.transform(TEXTS)
    recipe = options.get("recipe")
    fitted = {"recipe": recipe} if recipe else {"parts": [Part(TokenTable(8), Identity())]}
    expected = BertFlow.fit(sentences, tiny_bert, device="cpu", **fitted).encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1, np.abs(expected).max()))
    assert len(step.get_feature_names_out()) == found.shape[1]
    joblib.dump(step, tmp_path / "step")
    assert all(part.view.encoder is None for part in step.parts_)  # so that its weights are not stored
    if recipe in (None, "static-4"):  # then the encoder is not needed any more
        shutil.rmtree(copied)
        integration._loaded.cache_clear()
    np.testing.assert_array_equal(joblib.load(tmp_path / "step").transform(TEXTS), found)


def test_a_recipe_and_a_view_are_too_much(tiny_bert):
    with pytest.raises(InputError, match="give one of them"):
        SentenceVectors(str(tiny_bert), recipe="best", view=TokenTable()).fit(TEXTS)
    with pytest.raises(InputError, match=r"Unknown recipe 'bets' \(did you mean 'best'"):
        SentenceVectors("no/such-encoder", recipe="bets").fit(TEXTS)


def test_columns_of_a_table(vectors):
    pandas = pytest.importorskip("pandas", reason="a DataFrame needs pip install pandas")
    table = pandas.DataFrame({"text": TEXTS, "length": [float(len(text)) for text in TEXTS]})
    columns = ColumnTransformer(
        [("text", make_pipeline(vectors, Whitening(3)), "text"), ("length", FunctionTransformer(), ["length"])]
    )
    assert columns.fit_transform(table).shape == (12, 4)
    wrong = ColumnTransformer([("text", vectors, ["text", "length"])])
    with pytest.raises(InputError, match="X has 2 columns"):
        wrong.fit(table)


def test_a_model_in_a_function_transformer(small_model):
    step = FunctionTransformer(small_model.encode).fit(TEXTS)
    np.testing.assert_array_equal(step.transform(TEXTS), small_model.encode(TEXTS))
