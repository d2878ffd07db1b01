"""Parts: their vectors stand side by side, each scaled to its weight."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from bertflow import (
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    Part,
    Pooled,
    Standardize,
    TokenTable,
    View,
    Whitening,
    encoders,
)
from bertflow.parts import identity_of, split_columns

TEXTS = ["the cat sat on the mat", "a dog runs", "", "the red house and then tea"]


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


def two(weights=(1.0, 1.0)):
    return [Part(TokenTable(40), Whitening(8), weights[0]), Part(Pooled("cls"), Standardize(), weights[1])]


def squares(model, texts):
    """The mean square length of each part's vectors."""
    ends = np.cumsum([part.calibrator.dim for part in model.parts])[:-1]
    return [float(np.square(columns).sum(1).mean()) for columns in np.split(model.encode(texts), ends, axis=1)]


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.25, 3.0), (1e-3, 1e3)])
def test_weights_are_mean_square_lengths(encoder, sentences, weights):
    model = BertFlow.fit(sentences, encoder, parts=two(weights))
    np.testing.assert_allclose(squares(model, sentences), weights, rtol=1e-4)
    assert model.dim == 8 + 16
    assert model.recipe is None


def test_no_weight_is_as_much_as_there_are_dimensions(encoder, sentences):
    model = BertFlow.fit(sentences, encoder, parts=two((None, None)))
    np.testing.assert_allclose(squares(model, sentences), [8, 16], rtol=1e-4)


def test_the_cosine_is_the_weighted_mean_of_the_parts_cosines_where_lengths_are_equal(encoder, sentences):
    """Exactly so where every row of a part has the same length."""

    class _Unit(Identity):
        def transform(self, X):
            x = super().transform(X)
            return x / np.linalg.norm(x, axis=1, keepdims=True)

    weights = (1.0, 3.0)
    model = BertFlow.fit(
        sentences, encoder, parts=[Part(Pooled("cls"), _Unit(), weights[0]), Part(Pooled("mean"), _Unit(), weights[1])]
    )
    cosines = []
    for part in model.parts:
        unit = part.calibrator.transform(part.view.encode(TEXTS))
        cosines.append(unit @ unit.T)
    expected = (weights[0] * cosines[0] + weights[1] * cosines[1]) / sum(weights)
    np.testing.assert_allclose(model.similarity(TEXTS, TEXTS), expected, atol=1e-5)


def test_a_part_alone_is_not_scaled(encoder, sentences):
    part = Part(Pooled("mean"), Whitening(), weight=5.0)
    model = BertFlow.fit(sentences, encoder, parts=[part])
    assert part.scale == 1
    np.testing.assert_array_equal(model.encode(TEXTS), part.calibrator.transform(part.view.encode(TEXTS)))


def test_parts_are_independent(encoder, sentences):
    both = BertFlow.fit(sentences, encoder, parts=two())
    for part, alone, columns in zip(both.parts, two(), np.split(both.encode(TEXTS), [8], axis=1), strict=True):
        exact = BertFlow.fit(sentences, encoder, parts=[alone]).encode(TEXTS)
        np.testing.assert_allclose(columns, part.scale * exact, rtol=1e-4, atol=1e-5)


def test_all_views_come_from_one_pass(encoder, sentences, monkeypatch):
    passes, real = [], Encoder.encode_views
    monkeypatch.setattr(Encoder, "encode_views", lambda self, *a, **o: passes.append(len(a[1])) or real(self, *a, **o))
    parts = [Part(Pooled(pooling), Standardize()) for pooling in ("cls", "mean", "max", "cls")]
    model = BertFlow.fit(sentences, encoder, parts=parts)
    assert passes == [3]
    model.encode(TEXTS)
    assert passes == [3, 3]


class Letters(View):
    """Counts of some letters, and which of them the user's text has at all: a view of one's own."""

    learns = True
    needs_encoder = False

    def __init__(self, letters: str = "aeiou") -> None:
        self.letters = letters

    def _bind(self, encoder, show_progress_bar):
        self.dim = len(self.letters)

    def learn(self, texts):
        text = "".join(texts)
        self.known = np.array([[letter in text for letter in self.letters]], dtype=np.float32)

    def encode(self, texts, *, show_progress_bar=False):
        counts = [[text.count(letter) for letter in self.letters] for text in texts]
        return np.array(counts, dtype=np.float32) * self.known

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "known.npy", self.known)

    def restore(self, folder, described, encoder):
        super().restore(folder, described, encoder)
        self.known = np.load(folder / "known.npy")


def test_a_view_of_ones_own_through_fit_save_and_load(encoder, sentences, tmp_path):
    parts = [Part(Letters("aeioz"), Standardize(), 0.5), Part(Pooled("mean"), FlowCalibrator(epochs=1, random_state=0))]
    model = BertFlow.fit(sentences, encoder, parts=parts)
    np.testing.assert_allclose(squares(model, sentences), [0.5, 1], rtol=1e-3)
    again = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert [(part.weight, part.scale) for part in again.parts] == [(part.weight, part.scale) for part in model.parts]
    assert again.fingerprint == model.fingerprint
    assert repr(again.parts[0].view) == "Letters(letters='aeioz')"


def test_a_model_of_views_that_need_no_encoder_never_loads_it(encoder, sentences, tmp_path, monkeypatch):
    model = BertFlow.fit(sentences, encoder, parts=[Part(Letters(), Standardize())])
    folder = model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(
        "bertflow.encoders.choosing.load_encoder", lambda *_, **__: pytest.fail("the encoder was loaded")
    )
    again = BertFlow.from_pretrained(folder)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.encoder.name == model.encoder.name


def test_partial_fit_of_several_parts(encoder, sentences):
    model = BertFlow.fit(sentences[:200], encoder, parts=two())
    whole = BertFlow.fit(sentences[:200], encoder, parts=two())
    for part in whole.parts:
        part.calibrator.fit(part.view.encode(sentences))
    model.partial_fit(sentences[200:])
    np.testing.assert_allclose(model.similarity(TEXTS, TEXTS), whole.similarity(TEXTS, TEXTS), atol=1e-3)
    assert model.training["earlier_sentences"] == 200


def test_what_asks_for_the_one_calibrator_or_density_is_told_of_the_parts(encoder, sentences):
    model = BertFlow.fit(sentences, encoder, parts=two())
    with pytest.raises(InputError, match="This model has 2 parts, each with a calibrator of its own: see its parts"):
        _ = model.calibrator
    with pytest.raises(InputError, match="Whitening beside Standardize is not a density; fit a flow"):
        model.score_samples(TEXTS)


def test_columns_are_cut_where_the_views_end(encoder, sentences):
    model = BertFlow.fit(sentences, encoder, parts=two())
    views = [part.view.encode(TEXTS) for part in model.parts]
    for columns, vectors in zip(split_columns(model.parts, np.hstack(views)), views, strict=True):
        np.testing.assert_array_equal(columns, vectors)
        assert columns.flags.c_contiguous


def test_the_identity_of_parts_is_that_of_their_calibrators_and_scales(encoder, sentences):
    model, same = (BertFlow.fit(sentences, encoder, parts=two()) for _ in range(2))
    other = BertFlow.fit(sentences, encoder, parts=two((1.0, 2.0)))
    assert identity_of(model.parts) == identity_of(same.parts)
    assert identity_of(model.parts)["class"] == "Whitening beside Standardize"
    assert identity_of(model.parts)["sha256"] != identity_of(other.parts)["sha256"]


VIEWS = [
    Pooled(),
    Pooled("cls"),
    Pooled(words_only=True),
    TokenTable(8),
    Letters(),
    encoders.Prompt("{text} is {mask}"),
    encoders.Contrast("{text} is {mask}", "{text} not {mask}"),
    encoders.Echo("a {text} then {text}"),
    encoders.Sif(),
    encoders.Usif(),
    encoders.ZipfianWhitening(),
]


def test_every_view_is_tested_here():
    public = {name for name in encoders.__all__ if issubclass(getattr(encoders, name), View)} - {"View"}
    assert public <= {type(view).__name__ for view in VIEWS}


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_every_view_keeps_the_contract(encoder, view, sentences, tmp_path):
    fitted = clone(view).fit(encoder, sentences)
    vectors = fitted.encode(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (4, fitted.dim))
    np.testing.assert_allclose(np.concatenate([fitted.encode([text]) for text in TEXTS]), vectors, atol=1e-5)
    again = clone(view).fit(encoder, sentences)
    np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    assert again.fingerprint == fitted.fingerprint
    fitted.save(tmp_path / "view")
    loaded = View.load(tmp_path / "view", fitted.describe(), encoder)
    np.testing.assert_array_equal(loaded.encode(TEXTS), vectors)
    assert loaded.fingerprint == fitted.fingerprint
    assert loaded.get_params() == view.get_params()


@pytest.mark.parametrize(
    ("view", "calibrator", "weight", "sentence"),
    [
        (Whitening(), Pooled(), 1.0, r"A part is a view and a calibrator, such as .*; got Whitening and Pooled"),
        ("mean", Whitening(), 1.0, "got str and Whitening"),
        (Pooled(), Whitening(), 0, "weight is a positive number, or None; got 0"),
        (Pooled(), Whitening(), -1.0, "got -1.0"),
        (Pooled(), Whitening(), float("nan"), "got nan"),
    ],
)
def test_what_is_no_part(view, calibrator, weight, sentence):
    with pytest.raises(InputError, match=sentence):
        Part(view, calibrator, weight)


def test_a_pooling_of_what_pools_by_itself_is_refused(sentences):
    class Lengths:
        name, dim, fingerprint = "lengths", 1, "1"

        def encode(self, texts, *, show_progress_bar=False):
            return np.array([[len(text)] for text in texts], dtype=np.float32)

    with pytest.raises(InputError, match="'lengths' brings its own pooling; the pooling 'words only' needs"):
        Pooled(words_only=True).fit(Lengths(), ())
    assert Pooled().fit(Lengths(), ()).dim == 1


def test_parts_from_python_are_a_model_without_a_fit(encoder, sentences):
    fitted = BertFlow.fit(sentences, encoder, parts=two())
    model = BertFlow(encoder, parts=fitted.parts, recipe="mine")
    np.testing.assert_array_equal(model.encode(TEXTS), fitted.encode(TEXTS))
    assert repr(model).startswith(
        f"BertFlow(encoder={encoder.name!r}, recipe='mine', parts=[TokenTable(features=40) -> "
    )
