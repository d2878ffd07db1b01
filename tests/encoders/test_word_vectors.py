import logging
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from bertflow.encoders.word_vectors import AveragedWordVectors
from bertflow.errors import InputError

VECTORS = {
    "the": [0.5, -1.0, 2.0],
    "boat": [1.5, 3.0, -4.0],
    "Lisbon": [0.125, 0.25, 0.5],
    "café": [8.0, 8.0, 8.0],
    "7": [0.0, 1.0, 0.0],
    ".": [-1.0, -1.0, -1.0],
}
REAL = Path(os.environ.get("BERTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
GLOVE = REAL / "glove" / "glove.6B.50d.subset.txt"


def write_glove(path: Path, end: str = "\n") -> Path:
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in VECTORS.items()]
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_word2vec(path: Path) -> Path:
    write_glove(path, end=" \n")  # word2vec writes a space after the last number
    path.write_bytes(f"{len(VECTORS)} 3\n".encode() + path.read_bytes())
    return path


def write_binary(path: Path, end: bytes = b"\n") -> Path:
    records = (word.encode() + b" " + struct.pack("<3f", *vector) + end for word, vector in VECTORS.items())
    path.write_bytes(f"{len(VECTORS)} 3\n".encode() + b"".join(records))
    return path


WRITERS = {
    "glove": write_glove,
    "glove with CRLF": lambda path: write_glove(path, end="\r\n"),
    "word2vec": write_word2vec,
    "binary": write_binary,
    "binary without line feeds": lambda path: write_binary(path, end=b""),
}


@pytest.fixture(params=WRITERS)
def vectors(request, tmp_path):
    return AveragedWordVectors(WRITERS[request.param](tmp_path / "tiny.3d.txt"))


def mean(*words: str) -> np.ndarray:
    return np.mean([VECTORS[word] for word in words], axis=0)


def test_averages_known_words_in_every_format(vectors):
    encoded = vectors.encode(["the boat", "the unheard-of boat .", "café 7 the the"])
    assert encoded.dtype == np.float32
    assert encoded.shape == (3, vectors.dim) == (3, 3)
    expected = [mean("the", "boat"), mean("the", "boat", "."), mean("café", "7", "the", "the")]
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)


def test_falls_back_to_lower_case_only(vectors):
    encoded = vectors.encode(["The BOAT", "Lisbon", "lisbon boat"])
    np.testing.assert_allclose(encoded, [mean("the", "boat"), mean("Lisbon"), mean("boat")], rtol=1e-6)


def test_sentences_without_a_known_word_are_zero_and_logged_once(vectors, caplog):
    caplog.set_level(logging.WARNING, logger="bertflow")
    encoded = vectors.encode(["", "   ", "unheard-of", "\ud800", "the"])
    assert not encoded[:4].any()
    assert [record.getMessage() for record in caplog.records] == [
        "4 of 5 sentences have no word in tiny.3d.txt: zero vectors."
    ]


def test_known_and_unknown_words_are_never_looked_for_again(vectors):
    first = vectors.encode(["the Boat unheard-of"])
    vectors.path.unlink()
    np.testing.assert_array_equal(vectors.encode(["the Boat", "unheard-of the Boat"]), np.repeat(first, 2, axis=0))
    with pytest.raises(FileNotFoundError):
        vectors.encode(["new"])


def test_order_and_company_do_not_matter(vectors):
    together = vectors.encode(["the boat", "7 ."])
    apart = AveragedWordVectors(vectors.path)
    np.testing.assert_array_equal(together[::-1], np.concatenate([apart.encode(["7 ."]), apart.encode(["the boat"])]))


def test_no_sentences(vectors):
    assert vectors.encode([]).shape == (0, 3)
    with pytest.raises(InputError, match=r"\[sentence\]"):
        vectors.encode("the boat")


def test_words_with_spaces_are_told_from_their_first_part(tmp_path):
    path = tmp_path / "glove.840B.txt"
    path.write_text(". . . 9 9 9\nat name@example.org 9 9 9\nroom 101 9 9 9\n. 1 2 3\nat 4 5 6\nroom 7 8 9\n")
    vectors = AveragedWordVectors(path)
    assert (vectors.dim, vectors.name) == (3, "glove.840B")
    np.testing.assert_array_equal(vectors.encode([".", "at", "room"]), [[1, 2, 3], [4, 5, 6], [7, 8, 9]])


def test_the_first_of_two_entries_counts(tmp_path):
    (path := tmp_path / "v.txt").write_text("a 1 2\na 3 4\nb 5 6\n")
    np.testing.assert_array_equal(AveragedWordVectors(path).encode(["a", "b"]), [[1, 2], [5, 6]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2 3\nb 1 2 3\nc 1 2\n", r"v\.txt, line 3: expected a word and 3 numbers, found 2"),
        ("a 1 2\nb 1 2 3\nc 1 2 3\n", "line 1: expected a word and 3 numbers, found 2"),
        ("a 1 2 3\nb 1 2 3\nc 1 x 3\n", "line 3: expected a word and 3 numbers: .*'x'"),
        ("a 1 2 3\nb 1 2 3\nc 1 nan 3\n", "line 3: expected finite"),
        ("a 1 2 3\nb 1 2 3\nc 1 1e99 3\n", "line 3: expected finite"),
        ("3 2\na 1 2\nc 1\n", "line 3: expected a word and 2 numbers, found 1"),
        ("3 2\na 1 2\nb 1 2\n", "promises 3 words, the file ends after 2"),
    ],
)
def test_malformed_lines_are_named_each_time(content, message, tmp_path):
    (path := tmp_path / "v.txt").write_text(content)
    vectors = AveragedWordVectors(path)
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            vectors.encode(["c"])


def test_damaged_binary_files_are_named(tmp_path):
    path = write_binary(tmp_path / "v.bin")
    whole = path.read_bytes()
    path.write_bytes(whole[:-6])
    with pytest.raises(InputError, match=r"word 6 of 6: expected .* found the end of the file"):
        AveragedWordVectors(path).encode(["unheard-of"])
    path.write_bytes(whole[:-13] + struct.pack("<3f", 0, float("nan"), 0))
    with pytest.raises(InputError, match=r"word 6: expected finite"):
        AveragedWordVectors(path).encode(["."])
    path.write_bytes(b"2 3\n" + b"\x00" * (3 << 20))
    with pytest.raises(InputError, match=r"word 1 of 2: .* found no space"):
        AveragedWordVectors(path).encode(["a"])


@pytest.mark.parametrize("content", [b"", b"\n\n", b"once upon a time\n", b"PK\x03\x04\x00\x00 1 2\n"])
def test_what_is_no_vector_file_is_refused(content, tmp_path):
    (path := tmp_path / "v.zip").write_bytes(content)
    with pytest.raises(InputError, match="expected a word and its numbers"):
        AveragedWordVectors(path)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        AveragedWordVectors(tmp_path / "absent.txt")


def test_fingerprint_follows_the_content_not_the_place(tmp_path):
    one, two = write_glove(tmp_path / "one.txt"), write_glove(tmp_path / "two.txt")
    assert AveragedWordVectors(one).fingerprint == AveragedWordVectors(two).fingerprint
    two.write_bytes(two.read_bytes() + b"more 1 2 3\n")
    assert AveragedWordVectors(one).fingerprint != AveragedWordVectors(two).fingerprint


@pytest.mark.parametrize("writer", [write_glove, write_binary])
def test_files_larger_than_the_read_buffer(writer, tmp_path, monkeypatch):
    path = writer(tmp_path / "v")
    monkeypatch.setattr("bertflow.encoders.word_vectors._MEGABYTE", 32)
    np.testing.assert_allclose(AveragedWordVectors(path).encode([". the"])[0], mean(".", "the"))


@pytest.mark.skipif(not GLOVE.is_file(), reason=f"the GloVe subset is not at {GLOVE}; set BERTFLOW_DATA")
def test_real_glove_vectors():
    vectors = AveragedWordVectors(GLOVE)
    assert vectors.dim == 50
    the, cat, dog, law, both = vectors.encode(["the", "cat", "dog", "law", "Cat dog"])
    np.testing.assert_allclose(the[:3], [0.418, 0.24968, -0.41242], rtol=1e-6)
    np.testing.assert_allclose(both, (cat + dog) / 2, rtol=1e-5)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(cat, dog) > 0.8 > cosine(cat, law)
