import os
from pathlib import Path

import numpy as np
import pytest

from bertflow import Encoder
from bertflow.errors import InputError
from bertflow.paper import table1

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "red", "blue", "house"]


@pytest.fixture
def counts(tmp_path):
    """Counts of ten words of the tiny models, and of one that they lack."""
    path = tmp_path / "counts.txt"
    path.write_text("".join(f"{word} {100 - i}\n" for i, word in enumerate([*WORDS, "zebra"])))
    return path


def test_words_are_ranked_and_looked_up(tiny_bert, counts):
    encoder = Encoder(tiny_bert, device="cpu")
    found = table1.word_embeddings(encoder, counts)
    ids = [encoder.tokenizer.get_vocab()[word] for word in WORDS]
    weights = encoder.model.get_input_embeddings().weight.numpy()
    np.testing.assert_array_equal(found.vectors, weights[ids])


def test_a_tiny_vocabulary_fills_only_the_first_bin(tiny_bert, counts):
    table = table1.run(Encoder(tiny_bert, device="cpu"), counts=counts)
    assert len(table.rows) == 7
    for row in table.rows:
        assert row.ours[0] is not None
        assert row.ours[1:] == (None, None, None)
    assert any("(0,100) has 10 of 100" in note for note in table.notes)
    assert "| mean ℓ2 norm | 0.95 |" in table.to_markdown()


def test_without_counts_it_says_what_to_give(tiny_bert, tmp_path, counts):
    with pytest.raises(InputError, match=r"no file of word counts at .*enwiki"):
        table1.run(tiny_bert, data=tmp_path)
    counts.write_text("zebra 3\n")
    with pytest.raises(InputError, match="No token"):
        table1.run(Encoder(tiny_bert, device="cpu"), counts=counts)


def test_an_encoder_without_token_embeddings_is_refused(counts):
    class Averages:
        name, dim, fingerprint = "averages", 3, "x"

        def encode(self, sentences):
            return np.zeros((len(sentences), 3))

    with pytest.raises(InputError, match="Averages has no table of token embeddings"):
        table1.run(Averages(), counts=counts)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1.0, 1.1, 1.2, 1.3), "grows in every bin, as in BERT"),
        ((1.0, 0.9, 1.2, 1.3), "grows in 2 of 3 steps"),
        ((1.3, 1.2, 1.1, 1.0), "does not grow"),
        ((1.0, 1.1, None, None), "grows in every bin"),
    ],
)
def test_the_reading_follows_the_figures(values, words):
    assert words in table1._reading(values, values)[0]
    assert table1._reading((1.0, None, None, None), values)[0].startswith("The mean distance")


def test_real_counts_and_the_mini_encoder(request, mini):
    data = Path(os.environ.get("BERTFLOW_DATA") or Path(request.config.rootpath).parent / "shared" / "data")
    if not (data / table1.COUNTS_FILE).is_file():
        pytest.skip(f"the word counts are not in {data}; set BERTFLOW_DATA to the folder of data sets")
    table = table1.run(mini, data=data)
    norm = table.rows[0].ours
    assert norm == pytest.approx((1.06, 1.01, 1.06, 1.13), abs=0.006)
    assert all(value is not None for row in table.rows for value in row.ours)
