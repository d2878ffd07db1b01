"""From a cosine to how often unrelated texts reach it."""

import json

import numpy as np
import pytest
from scipy import stats

from bertflow.corpus import Law, Significance
from bertflow.corpus.significance import readable
from bertflow.errors import InputError


def gaussian_rows(n=1500, d=40, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def cosines_above(vectors, threshold):
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return int((np.triu(rows @ rows.T, 1) >= threshold).sum())


class Reversing:
    """A model: a text's vector follows from its number."""

    def __init__(self, shift=0):
        self.shift = shift

    def encode(self, texts):
        return np.stack([np.random.default_rng(int(text) + self.shift).standard_normal(12) for text in texts])


def test_as_many_unrelated_pairs_as_expected_reach_the_threshold():
    vectors = gaussian_rows(3000)
    significance = Significance.fit(vectors[:1500])
    for expected in (30, 300, 3000):
        found = cosines_above(vectors, significance.threshold(false_pairs=expected, among=len(vectors)))
        assert expected / 1.7 < found < 1.7 * expected


def test_related_pairs_among_the_random_ones_hardly_move_the_threshold():
    vectors = gaussian_rows(1200)
    related = np.repeat(gaussian_rows(200, seed=1), 6, axis=0) + 0.3 * gaussian_rows(1200, seed=2)  # 0.4 % of pairs
    clean, mixed = (Significance.fit(rows).threshold(1, 1200) for rows in (vectors, related))
    assert abs(mixed - clean) < 0.1
    assert np.quantile((related @ related.T) / 40, 1 - 1e-6) > 0.95  # what an empirical cut-off would have said


@pytest.mark.parametrize("query", [False, True])
def test_cosine_and_share_are_inverses(query):
    significance = Significance.fit(gaussian_rows(400), queries=gaussian_rows(60, seed=3))
    for share in (0.5, 1e-3, 1e-6):
        cosine = significance.threshold_of_share(share, query=query)
        assert significance.exceedance(cosine, query=query) == pytest.approx(share, rel=1e-6)


def test_exceedance_falls_and_arrays_are_taken():
    significance = Significance.fit(gaussian_rows(400))
    shares = significance.exceedance(np.linspace(-1, 1, 50))
    assert (np.diff(shares) <= 0).all()
    assert shares[0] > 0.999
    assert significance.exceedance(0.0) == pytest.approx(0.5, abs=0.02)


def test_a_law_is_found_again():
    cosines = stats.johnsonsu(-0.8, 2.0, loc=0.02, scale=0.1).rvs(200_000, random_state=0)
    law = Law.fit(cosines)
    share = stats.johnsonsu(-0.8, 2.0, loc=0.02, scale=0.1).sf(0.6)
    assert np.exp(law.log_exceedance(0.6)) == pytest.approx(share, rel=0.4)


def test_a_threshold_never_lies_above_what_equal_texts_have():
    significance = Significance(Law(0.0, 0.5, 0.0, 0.5))
    assert significance.threshold(1e-6, 10**6) == 1.0
    assert significance.threshold(10, 2) == -1.0


def test_queries_are_judged_by_their_own_law():
    documents = gaussian_rows(500)
    near = documents.mean(axis=0) + gaussian_rows(100, seed=4) + 2.0
    significance = Significance.fit(documents + 0.5, queries=near)
    assert significance.threshold(1, 500, queries=1) != significance.threshold(500, 500)
    assert significance.exceedance(0.3, query=True) > significance.exceedance(0.3)


def test_cross_fitting_judges_each_half_by_a_model_of_the_other():
    texts = [str(number) for number in range(200)]
    seen = []

    def refit(half):
        seen.append(set(half))
        return Reversing(len(seen))

    significance = Significance.fit(texts, refit=refit, queries=texts[:50])
    assert seen[0].isdisjoint(seen[1])
    assert seen[0] | seen[1] == set(texts)
    assert significance.queries is not None
    assert significance == Significance.fit(texts, refit=refit_again(), queries=texts[:50])


def refit_again():
    count = iter((1, 2))
    return lambda half: Reversing(next(count))


def test_repeated_texts_count_once():
    texts = [str(number) for number in range(100)]
    assert Significance.fit(texts * 3, Reversing()) == Significance.fit(texts, Reversing())


def test_it_is_kept_as_plain_numbers():
    significance = Significance.fit(gaussian_rows(200), queries=gaussian_rows(50, seed=5))
    assert Significance.from_dict(json.loads(json.dumps(significance.to_dict()))) == significance


def test_a_cosine_is_explained():
    explanation = Significance(Law(0.0, 2.0, 0.0, 0.2)).explain(0.6)
    assert explanation.percentile > 99.9
    assert "1 in 7 0" not in str(explanation)
    assert str(explanation).startswith("cosine 0.600: 1 in ")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (3.14, "3.1"),
        (42, "42"),
        (240_321, "240 000"),
        (3_140_000, "3.1 million"),
        (4.2e11, "420 billion"),
        (3e14, "10^14"),
    ],
)
def test_numbers_are_readable(number, text):
    assert readable(number) == text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (gaussian_rows(10), "too few pairs"),
        (np.ones((100, 3)), "cannot tell texts apart"),
        (np.full((100, 3), np.nan), "NaN"),
        (["a text"], "need a model"),
        ([], "two axes"),
    ],
)
def test_unfit_input_is_one_sentence(given, message):
    with pytest.raises(InputError, match=message):
        Significance.fit(given)


@pytest.mark.parametrize(
    "known",
    [{}, {"pairs": {"gamma": 1}}, {"pairs": "x"}, {"pairs": {"gamma": 0, "delta": -1, "location": 0, "scale": 1}}],
)
def test_foreign_numbers_are_refused(known):
    with pytest.raises(InputError):
        Significance.from_dict(known)


def test_unfit_questions_are_refused():
    significance = Significance.fit(gaussian_rows(200))
    for call in (
        lambda: significance.threshold(0, 10),
        lambda: significance.threshold(1, 1),
        lambda: significance.threshold_of_share(0),
        lambda: significance.exceedance(float("nan")),
        lambda: significance.threshold(1, 10, queries=3),
    ):
        with pytest.raises(InputError):
            call()
