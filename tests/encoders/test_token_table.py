import warnings

import numpy as np
import pytest

from bertflow import BertFlow, Encoder, Part, Pooled, TokenTable, Whitening
from bertflow.encoders.base import Reading, View
from bertflow.encoders.token_table import FEATURES, encode_alone, standardized_average
from bertflow.errors import InputError, ModelFolderError

TEXTS = ["the cat sat on the mat", "a dog runs fast", "the bird sings and then tea"]


def fitted(encoder, texts=None, **settings):
    """A table bound to an encoder; without texts all its words weigh alike."""
    view = TokenTable(**settings)
    if texts is None:
        view.learns = False
    return view.fit(encoder, texts or ())


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def static(bert):
    return fitted(bert)


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet", "gpt2", "t5"])
def test_the_dot_product_of_tokens_is_a_gaussian_kernel_of_the_encoders_vectors(tiny, family):
    encoder = Encoder(tiny(family), device="cpu")
    static = fitted(encoder)
    vocabulary = encode_alone(encoder, range(len(encoder.tokenizer)))
    ids = [static.tokenizer.encode(text, add_special_tokens=False).ids for text in "abxyz"]
    assert all(len(row) == 1 for row in ids)
    found, own = static.encode(list("abxyz")), standardized_average(vocabulary, static.weights > 0)[np.concatenate(ids)]
    kernel, distances = found @ found.T, np.square(own[:, None] - own).sum(axis=-1)
    width = distances.sum() / -2 / np.log(kernel.clip(0.01, 1)).sum()
    np.testing.assert_allclose(kernel, np.exp(-distances / width / 2), atol=0.1)  # 1024 random features


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_token_alone_has_the_vectors_that_the_encoder_gives_it(tiny, family):
    encoder = Encoder(tiny(family), device="cpu")
    token = encoder.tokenizer("x", add_special_tokens=False)["input_ids"]
    average, last = encoder.encode_views(["x"], [Reading("embedding-last-avg"), Reading("mean")])
    found = encode_alone(encoder, token)
    np.testing.assert_allclose(found.mean(axis=0), average, atol=1e-5)
    np.testing.assert_allclose(found[1], last, atol=1e-5)


def test_no_layer_and_no_dimension_outweighs_the_others():
    layers = np.random.default_rng(0).normal(size=(2, 500, 4)).astype(np.float32)
    words = np.arange(500) < 400
    scaled = (
        layers * np.array([1, 1000], dtype=np.float32)[:, None, None] * np.array([1, 1, 1, 50], dtype=np.float32) + 7
    )
    np.testing.assert_allclose(
        standardized_average(scaled, words), standardized_average(layers, words), rtol=1e-3, atol=1e-3
    )
    constant = np.concatenate([layers, np.ones((2, 500, 1), dtype=np.float32)], axis=2)
    assert not standardized_average(constant, words)[:, -1].any()


def test_another_seed_gives_other_features_of_the_same_kernel(static, bert):
    other = fitted(bert, random_state=1)
    one, two = static.encode(TEXTS), other.encode(TEXTS)
    assert not np.allclose(one, two)
    np.testing.assert_allclose(one @ one.T, two @ two.T, atol=0.1)


def test_a_text_is_the_mean_of_its_tokens_whatever_their_order(static):
    one, other = static.encode(["dog house", "house dog"])
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(one, static.encode(["dog", "house"]).mean(axis=0), atol=1e-6)


def test_rare_tokens_weigh_more(bert):
    weighted = fitted(bert, ["the dog"] * 9 + ["the bird"])
    the, dog, bird = (weighted.tokenizer.token_to_id(token) for token in ("the", "dog", "bird"))
    assert weighted.weights[the] < weighted.weights[dog] < weighted.weights[bird]
    share = weighted.weights / weighted.weights[[the, dog]].sum()
    alone = weighted.encode(["the", "dog"])
    expected = share[the] * alone[0] + share[dog] * alone[1]
    np.testing.assert_allclose(weighted.encode(["the dog"])[0], expected, atol=1e-6)


def test_punctuation_and_special_tokens_weigh_nothing(tiny):
    static = fitted(Encoder(tiny("roberta"), device="cpu"), ["a dog, a cat!"])
    np.testing.assert_allclose(*static.encode(["dog", "dog?!,..."]), atol=1e-6)
    special = [static.tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<pad>")]
    assert not static.weights[special].any()


def test_texts_without_words_have_vectors_too(tiny):
    static = fitted(Encoder(tiny("roberta"), device="cpu"), TEXTS)
    vectors = static.encode(["", "...", "?!"])
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[0], static.nothing)
    assert not np.allclose(vectors[1], vectors[2])


def test_other_weights_are_another_fingerprint(static, bert):
    one, two = fitted(bert, TEXTS), fitted(bert, TEXTS)
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint not in (static.fingerprint, fitted(bert, TEXTS[:1]).fingerprint)
    np.testing.assert_array_equal(one.encode(TEXTS), two.encode(TEXTS))


def test_texts_are_gone_through_once_and_in_parts(bert, monkeypatch):
    monkeypatch.setattr("bertflow.encoders.token_table.TEXTS_AT_ONCE", 2)
    np.testing.assert_array_equal(fitted(bert, iter(TEXTS)).weights, fitted(bert, TEXTS).weights)


def test_a_vocabulary_is_encoded_once_for_all_settings(bert, monkeypatch):
    fitted(bert)
    monkeypatch.setattr(type(bert.model), "forward", None)
    assert fitted(bert, TEXTS, features=5, random_state=3).encode(TEXTS).shape == (3, 5)


def test_saved_and_loaded(bert, tmp_path):
    view = fitted(bert, TEXTS, features=32)
    view.save(tmp_path / "table")
    again = View.load(tmp_path / "table", view.describe(), bert)
    assert repr(again) == repr(view) == "TokenTable(features=32)"
    assert again.fingerprint == view.fingerprint
    np.testing.assert_array_equal(again.encode(TEXTS), view.encode(TEXTS))
    (tmp_path / "table" / "table.safetensors").write_bytes(b"no")
    with pytest.raises(ModelFolderError, match="holds no table"):
        View.load(tmp_path / "table", view.describe(), bert)


def test_views_of_other_versions_are_named(bert, tmp_path):
    with pytest.raises(InputError, match=r"Unknown view 'Magic'; this version knows .*TokenTable"):
        View.load(tmp_path, {"class": "Magic", "params": {}}, bert)
    with pytest.raises(InputError, match="settings of TokenTable are not what this version wrote"):
        View.load(tmp_path, {"class": "TokenTable", "params": {"colour": 1}}, bert)


def test_only_transformers_with_a_fast_tokenizer_have_token_vectors(bert, monkeypatch):
    with pytest.raises(InputError, match=r"fast tokenizer.*Use a recipe without them, such as 'whitening'"):
        TokenTable().fit(object(), TEXTS)
    monkeypatch.setattr(type(bert.tokenizer), "is_fast", False)
    with pytest.raises(InputError, match="fast tokenizer"):
        TokenTable().fit(bert, TEXTS)


@pytest.mark.parametrize("bundle", [False, True])
@pytest.mark.parametrize(("recipe", "dim"), [("static", FEATURES), ("static-8", 8), ("best", FEATURES + 16)])
def test_from_fit_to_load(recipe, dim, bundle, tiny_bert, sentences, tmp_path):
    model = BertFlow.fit(sentences, tiny_bert, recipe=recipe, device="cpu")
    assert model.dim == dim
    model.save_pretrained(tmp_path / "model", bundle_encoder=bundle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as one about another fingerprint
        again = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-4)
    assert (again.encoder.name, again.recipe, again.fingerprint) == (str(tiny_bert), recipe, model.fingerprint)
    assert model.similarity(TEXTS[0], TEXTS[0]) == pytest.approx(1)


def test_a_static_model_needs_no_transformer(tiny, sentences, tmp_path, change_config):
    model = BertFlow.fit(sentences, tiny("bert"), recipe="static-8", device="cpu")
    folder = model.save_pretrained(tmp_path / "model")
    change_config(folder, lambda config: config["encoder"].update(name="/gone"))
    np.testing.assert_allclose(BertFlow.from_pretrained(folder).encode(TEXTS), model.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("recipe", ["static", "static-8", "best"])
def test_they_bring_their_own_pooling(recipe, tiny_bert):
    for mine in ({"recipe": recipe, "pooling": "mean"}, {"recipe": f"{recipe}@mean"}):
        with pytest.raises(InputError, match="brings its own pooling; leave out 'mean'"):
            BertFlow.fit(TEXTS, tiny_bert, device="cpu", **mine)


def test_a_view_of_words_beside_the_table_is_pooled_over_words_whatever_the_encoder_does(tiny, sentences):
    own = Encoder(tiny("roberta"), "mean", device="cpu")
    texts = [text[:25] for text in sentences]
    words = Part(Pooled("first-last-avg", words_only=True), Whitening())
    model = BertFlow.fit(texts, own, parts=[Part(TokenTable(16), Whitening()), words])
    there = Encoder(tiny("roberta"), "first-last-avg", words_only=True, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(
        model.encode(TEXTS)[:, 16:], words.scale * words.calibrator.transform(there), rtol=1e-3, atol=1e-4
    )
