import warnings

import numpy as np
import pytest

from bertflow import BertFlow, Encoder
from bertflow.calibrators import Whitening
from bertflow.errors import InputError, ModelFolderError
from bertflow.encoders.joined import distill
from bertflow.encoders.token_table import FEATURES, StaticEncoder, encode_alone, standardized_average

TEXTS = ["the cat sat on the mat", "a dog runs fast", "the bird sings and then tea"]


@pytest.fixture(scope="module")
def static(tiny_bert):
    return StaticEncoder.distill(Encoder(tiny_bert, device="cpu"))


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet", "gpt2", "t5"])
def test_the_dot_product_of_tokens_is_a_gaussian_kernel_of_the_encoders_vectors(tiny, family):
    encoder = Encoder(tiny(family), device="cpu")
    static = StaticEncoder.distill(encoder)
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
    average, last = encoder.encode_views(["x"], [("embedding-last-avg", False), ("mean", False)])
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


def test_another_seed_gives_other_features_of_the_same_kernel(static, tiny_bert):
    other = StaticEncoder.distill(Encoder(tiny_bert, device="cpu"), random_state=1)
    one, two = static.encode(TEXTS), other.encode(TEXTS)
    assert not np.allclose(one, two)
    np.testing.assert_allclose(one @ one.T, two @ two.T, atol=0.1)


def test_a_text_is_the_mean_of_its_tokens_whatever_their_order(static):
    one, other = static.encode(["dog house", "house dog"])
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(one, static.encode(["dog", "house"]).mean(axis=0), atol=1e-6)


def test_rare_tokens_weigh_more(static):
    weighted = static.weighted_by(["the dog"] * 9 + ["the bird"])
    the, dog, bird = (weighted.tokenizer.token_to_id(token) for token in ("the", "dog", "bird"))
    assert weighted.weights[the] < weighted.weights[dog] < weighted.weights[bird]
    share = weighted.weights / weighted.weights[[the, dog]].sum()
    alone = weighted.encode(["the", "dog"])
    expected = share[the] * alone[0] + share[dog] * alone[1]
    np.testing.assert_allclose(weighted.encode(["the dog"])[0], expected, atol=1e-6)


def test_punctuation_and_special_tokens_weigh_nothing(tiny):
    static = StaticEncoder.distill(Encoder(tiny("roberta"), device="cpu"), ["a dog, a cat!"])
    np.testing.assert_allclose(*static.encode(["dog", "dog?!,..."]), atol=1e-6)
    special = [static.tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<pad>")]
    assert not static.weights[special].any()


def test_texts_without_words_have_vectors_too(tiny):
    static = StaticEncoder.distill(Encoder(tiny("roberta"), device="cpu"), TEXTS)
    vectors = static.encode(["", "...", "?!"])
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[0], static.nothing)
    assert not np.allclose(vectors[1], vectors[2])


def test_other_weights_are_another_fingerprint(static):
    one, two = static.weighted_by(TEXTS), static.weighted_by(TEXTS)
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint not in (static.fingerprint, static.weighted_by(TEXTS[:1]).fingerprint)
    np.testing.assert_array_equal(one.encode(TEXTS), two.encode(TEXTS))


def test_saved_and_loaded(static, tmp_path):
    encoder = static.weighted_by(TEXTS)
    encoder.save(tmp_path / "table")
    again = StaticEncoder.load(tmp_path / "table")
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    (tmp_path / "table" / "table.safetensors").write_bytes(b"no")
    with pytest.raises(ModelFolderError, match="holds no table"):
        StaticEncoder.load(tmp_path / "table")


def test_only_transformers_have_token_vectors():
    with pytest.raises(InputError, match="fast tokenizer"):
        StaticEncoder.distill(object())


@pytest.mark.parametrize("bundle", [False, True])
@pytest.mark.parametrize("preset", ["static", "best"])
def test_from_fit_to_load(preset, bundle, tiny_bert, sentences, tmp_path):
    model = BertFlow.fit(sentences, tiny_bert, preset=preset, device="cpu")
    contextual = Encoder(tiny_bert, device="cpu").dim if preset == "best" else 0
    assert model.dim == FEATURES + contextual
    model.save_pretrained(tmp_path / "model", bundle_encoder=bundle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as one about another fingerprint
        again = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert again.encoder.name == str(tiny_bert)
    assert model.similarity(TEXTS[0], TEXTS[0]) == pytest.approx(1)


@pytest.mark.parametrize("preset", ["static", "best"])
@pytest.mark.parametrize("mine", [{"pooling": "mean"}, {"calibrator": Whitening()}])
def test_they_bring_their_own_pooling_and_calibrator(preset, mine, tiny_bert):
    with pytest.raises(InputError, match="brings its own"):
        BertFlow.fit(TEXTS, tiny_bert, preset=preset, device="cpu", **mine)


def test_the_contextual_part_of_best_is_pooled_over_words(tiny):
    encoder = distill("best", tiny("roberta"), TEXTS, device="cpu")
    assert encoder.contextual.words_only
    own = Encoder(tiny("roberta"), "mean", device="cpu")
    encoder = distill("best", own, TEXTS)
    np.testing.assert_array_equal(
        encoder.encode(TEXTS)[:, -own.dim :], own.encode(TEXTS)
    )  # an Encoder keeps its pooling
