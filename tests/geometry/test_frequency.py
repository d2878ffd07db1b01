import os
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry import frequency
from bertflow.geometry.frequency import PAPER_BINS, count_tokens, frequency_table, rank_tokens, read_word_counts


@pytest.fixture
def real_counts(request):
    data = os.environ.get("BERTFLOW_DATA") or Path(request.config.rootpath).parent / "shared" / "data"
    path = Path(data) / "frequency" / "enwiki_120M_wordcount.txt"
    if not path.is_file():
        pytest.skip(f"the word counts are not at {path}; set BERTFLOW_DATA to the folder of data sets")
    return path


def brute_force(x, start, stop, k):
    """Mean distance to and mean dot product with k neighbours, one word at a time."""
    distances, dots = [], []
    for i in range(start, stop):
        others = np.delete(x, i, axis=0)
        distances.append(np.sort(np.linalg.norm(others - x[i], axis=1))[:k].mean())
        dots.append(np.sort(others @ x[i])[::-1][:k].mean())
    return np.mean(distances), np.mean(dots)


def test_orthonormal_vectors_are_all_equally_far():
    table = frequency_table(np.eye(12), bins=[(0, 5), (5, 12)], ks=[1, 3])
    assert table.words == (5, 7)
    assert table.norm == pytest.approx((1, 1))
    assert table.distance[1] == table.distance[3] == pytest.approx((sqrt(2), sqrt(2)))
    assert table.dot[1] == table.dot[3] == (0, 0)


def test_inner_points_of_a_lattice():
    points = sorted(product(range(-2, 3), repeat=2), key=lambda point: max(map(abs, point)))  # the inner nine first
    table = frequency_table(np.array(points, dtype=float), bins=[(0, 9)], ks=[4, 8])
    assert table.distance[4] == pytest.approx((1,))
    assert table.distance[8] == pytest.approx(((4 + 4 * sqrt(2)) / 8,))


def test_dot_products_choose_other_neighbours_than_distances():
    x = np.array([[1.0, 0.0], [1.1, 0.0], [50.0, 0.0]])  # far away in the same direction: the largest dot product
    table = frequency_table(x, bins=[(0, 1)], ks=[1])
    assert table.distance[1] == pytest.approx((0.1,))
    assert table.dot[1] == pytest.approx((50,))


@pytest.mark.parametrize("cells", [1, 100, 2**21])
def test_blocks_do_not_change_the_figures(monkeypatch, cells):
    monkeypatch.setattr(frequency, "_CELLS", cells)
    x = np.random.default_rng(0).normal(size=(60, 5))
    table = frequency_table(x, bins=[(0, 7), (7, 60)], ks=[2, 5])
    for number, (start, stop) in enumerate(table.bins):
        for k in (2, 5):
            found = table.distance[k][number], table.dot[k][number]
            assert found == pytest.approx(brute_force(x, start, stop, k))


def test_equal_words_are_neighbours_at_distance_zero():
    x = np.repeat(np.random.default_rng(0).normal(size=(3, 8)), 3, axis=0).astype(np.float32)
    table = frequency_table(x, bins=[(0, 9)], ks=[2])
    assert table.distance[2] == pytest.approx((0,), abs=1e-6)


def test_too_few_words_leave_cells_empty():
    table = frequency_table(np.eye(4), bins=[(0, 3), (3, 10), (10, 20)], ks=[2, 3, 4])
    assert table.words == (3, 1, 0)
    assert table.norm == (1, 1, None)
    assert table.distance[3] == (pytest.approx(sqrt(2)), pytest.approx(sqrt(2)), None)
    assert table.distance[4] == table.dot[4] == (None, None, None)


def test_one_word_has_a_norm_and_no_neighbours():
    table = frequency_table([[3.0, 4.0]])
    assert table.norm == (5, None, None, None)
    assert table.distance[3] == table.dot[7] == (None,) * 4
    assert table.to_dict()["bins"] == PAPER_BINS


@pytest.mark.parametrize(
    ("options", "message"),
    [({"bins": [(5, 5)]}, r"bin \(5, 5\)"), ({"bins": [(-1, 5)]}, "bin"), ({"ks": []}, "ks"), ({"ks": [0, 3]}, "ks")],
)
def test_senseless_bins_and_neighbours_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        frequency_table(np.eye(9), **options)


def test_counts_are_read_in_either_separation(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_bytes("\ufeffthe 12\r\ncafé\t7\n\n#x 3 \nü\u00a0b 1".encode())
    assert read_word_counts(path) == {"the": 12, "café": 7, "#x": 3, "ü\u00a0b": 1}


@pytest.mark.parametrize("line", ["word", "12", "two words 3", "word -3", "word 1.5", "word ٣", "word " + "9" * 5000])
def test_a_malformed_line_is_named(tmp_path, line):
    path = tmp_path / "counts.txt"
    path.write_text(f"the 12\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"counts\.txt, line 2, .*a whole number"):
        read_word_counts(path)


def test_repeated_words_and_empty_files_are_refused(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("tea 3\ncat 2\ntea 1\n")
    with pytest.raises(InputError, match=r"line 3, counts 'tea' twice"):
        read_word_counts(path)
    path.write_text("\n\n")
    with pytest.raises(InputError, match="holds no word count"):
        read_word_counts(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_word_counts(tmp_path / "absent.txt")


def test_word_pieces_and_special_tokens_are_no_words():
    vocabulary = {"[CLS]": 0, "tea": 1, "##tea": 2, "the": 3, "##s": 4, "cat": 5, "unseen": 6}
    counts = {"the": 90, "tea": 4, "cat": 7, "[CLS]": 99, "s": 60}
    assert rank_tokens(vocabulary, counts, special=["[CLS]"]) == [3, 5, 1]
    assert count_tokens(vocabulary, counts, special=["[CLS]"]) == {3: 90, 5: 7, 1: 4}


def test_counts_of_tokens_are_those_of_pieces_too():
    vocabulary = {"[CLS]": 0, "tea": 1, "##tea": 2, "the": 3, "##s": 4, "cat": 5, "unseen": 6}
    counts = {"the": 90, "##s": 60, "tea": 4, "cat": 7, "##tea": 50, "[CLS]": 99, "absent": 8}
    assert rank_tokens(vocabulary, counts, special=["[CLS]"]) == [3, 4, 2, 5, 1]


def test_counts_of_marked_tokens():
    vocabulary = {"Ġthe": 0, "the": 1, "Ġtea": 2, "pot": 3}
    assert rank_tokens(vocabulary, {"Ġthe": 9, "pot": 5, "the": 1}) == [0, 3, 1]


def test_one_odd_word_does_not_make_counts_of_tokens():
    vocabulary = {"tea": 0, "##s": 1, "cat": 2}
    words = {f"word{i}": 1 for i in range(100)}
    assert rank_tokens(vocabulary, {**words, "##s": 50, "cat": 2, "tea": 1}) == [2, 0]


def test_a_file_of_token_counts(tmp_path):
    path = tmp_path / "token_counts.tsv"
    path.write_text("the\t90\n##s\t60\n,\t55\n#\t3\n", encoding="utf-8")
    counts = read_word_counts(path)
    assert counts == {"the": 90, "##s": 60, ",": 55, "#": 3}
    assert rank_tokens({"the": 5, "##s": 6, ",": 7, "#": 8}, counts) == [5, 6, 7, 8]


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
def test_marked_beginnings_are_words(mark):
    vocabulary = {"<s>": 0, f"{mark}tea": 1, "tea": 2, f"{mark}the": 3, "the": 4, "####": 5, "##": 6, mark: 7}
    assert rank_tokens(vocabulary, {"the": 9, "tea": 3, "##": 99}) == [3, 1]


def test_without_marks_every_token_is_a_word_and_case_counts():
    assert rank_tokens({"Tea": 0, "tea": 1, "the": 2}, {"tea": 3, "the": 9}) == [2, 1]


def test_equal_counts_are_ordered_by_id():
    assert rank_tokens({"c": 2, "a": 9, "b": 4, "d": 1}, {"a": 5, "b": 5, "c": 5, "d": 1}) == [2, 4, 9, 1]
    assert rank_tokens({"a": 0}, {}) == []


def test_real_counts(real_counts):
    counts = read_word_counts(real_counts)
    assert len(counts) > 300_000
    assert max(counts, key=counts.__getitem__) == "the"
