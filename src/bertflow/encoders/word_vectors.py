"""Averaged word vectors: the oldest sentence embedding that still makes a fair baseline (paper, Tables 2 and 3).

Reads GloVe's text format (no header) and word2vec's text and binary formats (fastText's ``.vec`` is word2vec text),
told apart by their first bytes. The file is streamed, and only the words that occur in the sentences are kept.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError

logger = logging.getLogger(__name__)

Vector = npt.NDArray[np.float32]

_MEGABYTE = 1 << 20
_HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


class AveragedWordVectors:
    """Mean of the vectors of a sentence's words.

    Tokens are what spaces separate, as in SentEval, whose files are tokenised already; raw text, "end." is not "end".
    A token that the file lacks is looked up in lower case too. What neither finds is left out; a sentence without any
    known word becomes the zero vector.

    Args:
        path: A vector file, unpacked.

    Attributes:
        path: The file.
        name: Its name without the ending.
        dim: Dimensions of the vectors.
        fingerprint: Identifies the content: SHA-256 of the size, the first and the last megabyte, since hashing
            gigabytes would take longer than using them.

    Example:
        >>> AveragedWordVectors("glove.6B.50d.txt").encode(["a small boat", "the harbour"]).shape  # doctest: +SKIP
        (2, 50)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"There is no file {str(self.path)!r}; give the path of a GloVe or word2vec file.")
        self.name = self.path.stem
        self._layout = _detect(self.path)
        self.dim = self._layout.dim
        self.fingerprint = _fingerprint(self.path)
        self._known: dict[str, Vector | None] = {}  # None: looked for, not in the file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, dim={self.dim})"

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load them again."""
        return {
            "class": "AveragedWordVectors",
            "name": str(self.path),
            "dim": self.dim,
            "fingerprint": self.fingerprint,
        }

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Vector:
        """Return one vector a sentence, (n, d); reads the file at most once, and only for words never met before."""
        if isinstance(sentences, str):
            raise InputError("encode takes a list of sentences; for a single one, pass [sentence].")
        tokens = [sentence.split() for sentence in sentences]
        self._learn({form for words in tokens for word in words for form in (word, word.lower())})
        result = np.zeros((len(tokens), self.dim), dtype=np.float32)
        empty = 0
        for row, words in zip(result, tokens, strict=True):
            found = [vector for word in words if (vector := self._lookup(word)) is not None]
            empty += not found
            if found:
                row[:] = np.mean(found, axis=0, dtype=np.float64)
        if empty:
            logger.warning("%d of %d sentences have no word in %s: zero vectors.", empty, len(tokens), self.path.name)
        return result

    def _lookup(self, word: str) -> Vector | None:
        vector = self._known[word]
        return self._known[word.lower()] if vector is None else vector

    def _learn(self, words: set[str]) -> None:
        """Find the words not looked for so far; the first of several entries counts."""
        wanted = {word.encode(errors="surrogatepass"): word for word in words - self._known.keys()}
        found: dict[str, Vector] = {}
        if wanted:
            read = _read_binary if self._layout.binary else _read_text
            for word, vector in read(self.path, self._layout, wanted.keys()):
                found.setdefault(wanted[word], vector)
                if len(found) == len(wanted):
                    break
        # only now, so that a file with a bad line gives the same error on the next call
        self._known.update((word, found.get(word)) for word in wanted.values())


class _Layout(NamedTuple):
    """What the first bytes tell: dimensions, words promised by a header (None: no header), binary or text."""

    dim: int
    words: int | None
    binary: bool


def _detect(path: Path) -> _Layout:
    with path.open("rb") as file:
        header = _HEADER.fullmatch(file.readline(_MEGABYTE))
        if header and int(header[2]):
            count, dim = int(header[1]), int(header[2])
            return _Layout(dim, count, _looks_binary(file.read(4 * dim + 64)))
        file.seek(0)
        lines = list(islice(iter(lambda: file.readline(_MEGABYTE), b""), 20))
    # the most common width, because one of the first words may contain spaces or end in a number
    widths = Counter(width for line in lines if (width := _trailing_numbers(line.split()[1:])))
    if not widths or _looks_binary(lines[0]):
        raise InputError(
            f"{path}, line 1: expected a word and its numbers (GloVe), or the number of words and of dimensions "
            "(word2vec). If the file is compressed, unpack it first."
        )
    return _Layout(widths.most_common(1)[0][0], None, False)


def _looks_binary(sample: bytes) -> bool:
    """Float32 bytes hold control characters or are not valid UTF-8; text neither."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # incremental: the sample may end within a character
    except UnicodeDecodeError:
        return True
    return bool(_CONTROL.search(sample))


def _trailing_numbers(fields: list[bytes]) -> int:
    for count, field in enumerate(reversed(fields)):
        try:
            float(field)
        except ValueError:
            return count
    return len(fields)


def _read_text(path: Path, layout: _Layout, wanted: Set[bytes]) -> Iterator[tuple[bytes, Vector]]:
    """Yield the wanted words of a text file; split from the right, as GloVe 840B has words that contain spaces."""
    headers = 0 if layout.words is None else 1
    seen = 0
    with path.open("rb") as file:
        for number, raw in islice(enumerate(file, start=1), headers, None):
            line = raw.rstrip()
            if not line:
                continue
            seen += 1
            if line.count(b" ") < layout.dim:
                found = _trailing_numbers(line.split()[1:])
                raise InputError(f"{path}, line {number}: expected a word and {layout.dim} numbers, found {found}.")
            if line[: line.index(b" ")] in wanted:  # a look at the first token spares most lines the split
                word, *fields = line.rsplit(b" ", layout.dim)
                if word in wanted:
                    yield word, _parse(fields, f"{path}, line {number}")
    if seen < (layout.words or 0):
        raise InputError(f"{path}: the header promises {layout.words} words, the file ends after {seen}.")


def _parse(fields: list[bytes], place: str) -> Vector:
    try:
        vector = np.array([float(field) for field in fields])
    except ValueError as error:
        raise InputError(f"{place}: expected a word and {len(fields)} numbers: {error}.") from None
    return _finite(vector, place)


def _finite(vector: npt.NDArray[np.floating[Any]], place: str) -> Vector:
    with np.errstate(over="ignore"):
        single = vector.astype(np.float32)
    if not np.isfinite(single).all():
        raise InputError(f"{place}: expected finite float32 numbers, found NaN, infinity or a larger one.")
    return single


def _read_binary(path: Path, layout: _Layout, wanted: Set[bytes]) -> Iterator[tuple[bytes, Vector]]:
    """Yield the wanted words of a word2vec binary file: word, space, float32 numbers, often a line feed."""
    size, buffer, at = 4 * layout.dim, b"", 0
    with path.open("rb") as file:
        file.readline()
        for number in range(1, (layout.words or 0) + 1):
            while (space := buffer.find(b" ", at)) < 0 or len(buffer) <= space + size:
                chunk = file.read(_MEGABYTE)
                if not chunk or (space < 0 and len(buffer) - at > _MEGABYTE):
                    raise InputError(
                        f"{path}, word {number} of {layout.words}: expected a word, a space and {layout.dim} float32 "
                        f"numbers, found {'the end of the file' if not chunk else 'no space'}. Is it whole?"
                    )
                buffer, at = buffer[at:] + chunk, 0
            word = buffer[at:space].lstrip(b"\n")
            at = space + 1 + size
            if word in wanted:
                yield word, _finite(np.frombuffer(buffer, "<f4", layout.dim, space + 1), f"{path}, word {number}")


def _fingerprint(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{size}\n".encode() + file.read(_MEGABYTE))
        file.seek(max(0, size - _MEGABYTE))
        digest.update(file.read(_MEGABYTE))
    return digest.hexdigest()
