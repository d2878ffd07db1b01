import csv

import numpy as np
import pytest

from bertflow import data

KINDS = {"graded", "paraphrase", "negation", "roles", "decisive", "homonym", "detail"}


@pytest.fixture(scope="module")
def rows():
    path = data.mini_folder().parent / "pairs.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_enough_pairs_of_every_kind_and_many_domains():
    pairs = data.sample_pairs()
    assert len(pairs) >= 600
    assert {pair.kind for pair in pairs} == KINDS
    assert len({pair.domain for pair in pairs}) >= 8
    assert len({(pair.sentence1, pair.sentence2) for pair in pairs}) == len(pairs)


def test_scores_are_the_mean_of_two_grades(rows):
    pairs = data.sample_pairs()
    assert len(rows) == len(pairs)
    for pair, row in zip(pairs, rows, strict=True):
        grades = [float(row["first_grade"]), float(row["second_grade"])]
        assert all(0 <= grade <= 5 for grade in grades), row
        assert 0 <= pair.score <= 5
        # Halves may be rounded either way.
        assert abs(pair.score - sum(grades) / 2) <= 0.05 + 1e-9, row
        assert round(pair.score, 1) == pair.score


def test_scores_use_the_whole_scale():
    scores = [pair.score for pair in data.sample_pairs()]
    for low in range(5):
        assert sum(low <= score <= low + 1 for score in scores) >= 20, low


def test_sentences_are_clean_and_none_of_them_is_in_a_pair():
    sentences = data.sample_sentences()
    assert len(set(sentences)) == len(sentences) >= 4000
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    paired = {text for pair in data.sample_pairs() for text in (pair.sentence1, pair.sentence2)}
    assert all(text and text == text.strip() and "\t" not in text for text in paired)

    def plain(texts):
        return {"".join(letter for letter in text.lower() if letter.isalnum()) for text in texts}

    assert not plain(paired) & plain(sentences)


def test_the_mini_encoder_is_there_without_pickles():
    files = {file.name for file in data.mini_folder().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl"))]


def test_the_two_graders_agree_as_the_data_card_says(rows):
    first, second = (np.array([float(row[name]) for row in rows]) for name in ("first_grade", "second_grade"))
    assert round(float(np.corrcoef(first, second)[0, 1]), 2) == 0.97
    assert round(float(np.abs(first - second).mean()), 2) == 0.26
