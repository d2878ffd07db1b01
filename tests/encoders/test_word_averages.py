"""SIF, uSIF and Zipfian whitening against their formulas, on three tokens worked out by hand."""

from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bertflow import RemoveMeanDirection, RemoveTopComponents, Sif, Usif, ZipfianWhitening
from bertflow.recipes import make_parts

VECTORS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [-1.0, 1.0]], dtype=np.float32)
TEXTS = ["a b", "a a c", "b"]  # a three times, b twice, c once: p = 1/2, 1/3, 1/6
P = np.array([1 / 2, 1 / 3, 1 / 6])


def fitted(view):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    view._take(tokenizer, VECTORS.copy(), np.ones(4, np.float32), np.zeros(2, np.float32))
    view.learn(TEXTS)
    return view


def test_sif_weighs_by_a_over_a_plus_p():
    a = 0.1
    weights = a / (a + P)
    expected = [
        (weights[0] * VECTORS[1] + weights[1] * VECTORS[2]) / 2,
        (2 * weights[0] * VECTORS[1] + weights[2] * VECTORS[3]) / 3,
        weights[1] * VECTORS[2],
    ]
    np.testing.assert_allclose(fitted(Sif(a)).encode(TEXTS), expected, rtol=1e-6)


def test_usif_takes_a_from_the_text_and_normalises_each_dimension():
    size = 3
    share = (1 - (1 - 1 / size) ** 11 < P).mean()
    a = (1 - share) / (share * size / 2) if share else (1 - share) / 1e-12
    weights = a / (a / 2 + P)
    words = {"a": (weights[0], VECTORS[1]), "b": (weights[1], VECTORS[2]), "c": (weights[2], VECTORS[3])}
    expected = []
    for text in TEXTS:
        counts = Counter(text.split())
        norm = np.sqrt(sum(n * words[w][1] ** 2 for w, n in counts.items()))
        total = sum(n * words[w][0] * words[w][1] for w, n in counts.items()) / sum(counts.values())
        expected.append(np.divide(total, norm, out=np.zeros(2), where=norm > 0))
    np.testing.assert_allclose(fitted(Usif()).encode(TEXTS), expected, rtol=1e-5)


def test_zipfian_whitening_has_unit_covariance_under_the_frequencies():
    view = fitted(ZipfianWhitening())
    table, p = view.vectors.astype(np.float64), np.array([0, *P])
    np.testing.assert_allclose(p @ table, 0, atol=1e-3)  # kept in half precision
    np.testing.assert_allclose((table * p[:, None]).T @ table, np.eye(2), atol=2e-3)
    np.testing.assert_allclose(view.encode(["a b"])[0], (table[1] + table[2]) / 2, atol=1e-6)


def test_removing_in_part_takes_each_direction_by_its_share():
    x = np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1] + 1
    values = np.linalg.svd(x, compute_uv=False) ** 2
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    expected = x.copy()
    for i, axis in enumerate(axes[:2]):
        expected -= values[i] / values[:2].sum() * np.outer(expected @ axis, axis)
    calibrator = RemoveTopComponents(2, center=False, partly=True).fit(x)
    np.testing.assert_allclose(calibrator.transform(x), expected, atol=1e-9)
    np.testing.assert_allclose(calibrator.inverse_transform(expected), x, atol=1e-9)


def test_the_mean_direction_is_gone_and_rows_have_length_one():
    x = np.array([[3.0, 4.0, 0.0], [0.0, 5.0, 0.0], [0.0, 3.0, 4.0]])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    mean = unit.mean(0) / np.linalg.norm(unit.mean(0))
    expected = unit - np.outer(unit @ mean, mean)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(RemoveMeanDirection().fit(x).transform(x), expected, atol=1e-12)


@pytest.mark.parametrize("recipe", ["sif", "usif", "zipfian", "soft-zca", "mean-direction"])
def test_the_rivals_are_recipes(recipe, tiny_bert, sentences, tmp_path):
    from bertflow import BertFlow

    model = BertFlow.fit(sentences, tiny_bert, recipe=recipe, device="cpu")
    assert [type(part.view) for part in model.parts] == [type(part.view) for part in make_parts(recipe)]
    again = BertFlow.from_pretrained(model.save_pretrained(tmp_path / "m"), device="cpu")
    np.testing.assert_allclose(again.encode(sentences[:5]), model.encode(sentences[:5]), atol=1e-6)
