import os
from pathlib import Path

import numpy as np
import pytest

from bertflow.errors import InputError, MissingExtraError
from bertflow.geometry.lexical import edit_distances, lexical_correlation, lexical_summary

pytest.importorskip("rapidfuzz", reason="edit distance needs the extra 'evaluation'")


@pytest.mark.parametrize(
    ("first", "second", "words", "characters"),
    [
        ("a red house", "a red house", 0, 0),
        ("a red house", "the red house", 1, 3),
        ("a red house", "house red a", 2, 10),
        ("tea", "a cup of  green tea", 4, 16),
        ("kitten", "sitting", 1, 3),
        ("", "two words", 2, 9),
        ("Tea .", "tea.", 2, 2),
    ],
)
def test_distances(first, second, words, characters):
    assert edit_distances([first], [second]).tolist() == [words]
    assert edit_distances([first], [second], "characters").tolist() == [characters]
    assert edit_distances([second], [first], "characters").tolist() == [characters]


def test_own_units():
    def pieces(sentence):
        return [word[i : i + 2] for word in sentence.split() for i in range(0, len(word), 2)]

    assert edit_distances(["greenest tea"], ["green tea"], tokenize=pieces).tolist() == [2]  # gr ee ne st | gr ee n


def test_no_pairs_give_no_distances():
    found = edit_distances([], [])
    assert found.shape == (0,)
    assert found.dtype == np.int64


def test_what_is_no_list_of_pairs_is_refused():
    with pytest.raises(InputError, match="as many"):
        edit_distances(["a"], ["b", "c"])
    with pytest.raises(InputError, match="one text"):
        edit_distances("tea", "cat")
    with pytest.raises(InputError, match="no unit 'bytes'"):
        edit_distances(["a"], ["b"], "bytes")


def test_the_absent_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rapidfuzz.distance.Levenshtein", None)
    with pytest.raises(MissingExtraError, match=r"bertflow\[evaluation\]"):
        edit_distances(["a"], ["b"])


def test_correlation():
    assert lexical_correlation([0.9, 0.5, 0.1], [0, 4, 30]) == pytest.approx(-100)
    assert lexical_correlation([1, 2, 2, 3], [1, 5, 5, 9]) == pytest.approx(100)  # ties share a rank
    assert lexical_correlation([1, 2, 1, 2], [1, 1, 2, 2]) == pytest.approx(0)


@pytest.mark.parametrize(
    ("similarities", "distances", "message"),
    [
        ([1, 2], [1, 2, 3], "one length"),
        ([1], [1], "some that differ"),
        ([1, np.nan], [1, 2], "hold NaN"),
        ([1, 2], [3, 3], "all distances, are the same"),
    ],
)
def test_undefined_correlations_say_why(similarities, distances, message):
    with pytest.raises(InputError, match=message):
        lexical_correlation(similarities, distances)


def test_summary_looks_at_near_pairs_by_themselves():
    distances = [1, 2, 3, 4, 5, 9, 20]
    similarities = [0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3]  # falls among near pairs, rises among the others
    found = lexical_summary(similarities, distances, gold=[5, 4, 3, 2, 1, 0, 0])
    assert (found.pairs, found.near, found.near_pairs) == (7, 4, 4)
    assert found.near_correlation == pytest.approx(-100)
    assert found.correlation == pytest.approx(lexical_correlation(similarities, distances))
    assert found.near_similarity == pytest.approx(0.75)
    assert found.far_similarity == pytest.approx(0.2)
    assert found.gold_correlation > 0
    assert found.to_dict()["near_pairs"] == 4


def test_summary_without_near_pairs_or_gold():
    found = lexical_summary([0.1, 0.2], [7, 7])
    assert found.correlation is found.near_correlation is found.near_similarity is found.gold_correlation is None
    assert found.far_similarity == pytest.approx(0.15)


@pytest.mark.parametrize(("unit", "expected"), [("words", -24.51), ("characters", -20.26)])
def test_gold_of_sts_benchmark_dev(request, unit, expected):
    from bertflow.evaluation import load_task

    data = Path(os.environ.get("BERTFLOW_DATA") or Path(request.config.rootpath).parent / "shared" / "data")
    if not (data / "senteval" / "downstream" / "STS" / "STSBenchmark").is_dir():
        pytest.skip(f"SentEval's STS-B is not in {data}; set BERTFLOW_DATA to the folder of data sets")
    pairs = load_task("STS-B", data, split="dev").subsets["all"]
    distances = edit_distances(pairs.sentences1, pairs.sentences2, unit)
    assert lexical_correlation(pairs.gold, distances) == pytest.approx(expected, abs=0.05)
