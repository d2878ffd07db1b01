"""Word frequency in an embedding table (paper, Table 1): do frequent words lie near the origin and close together?"""

from __future__ import annotations

import logging
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from bertflow.arrays import Matrix, as_matrix
from bertflow.errors import InputError
from bertflow.geometry.figures import Figures
from bertflow.storage.text_files import place, read_lines

logger = logging.getLogger(__name__)

Bin: TypeAlias = tuple[int, int]
ByBin: TypeAlias = tuple[float | None, ...]

PAPER_BINS: tuple[Bin, ...] = ((0, 100), (100, 500), (500, 5000), (5000, 10000))
PAPER_KS = (3, 5, 7)
_CELLS = 2**21  # words × words held at a time, in each of two matrices of 16 MiB
_COUNT_LINE = re.compile(r"([^ \t]+)[ \t]+([0-9]{1,18})[ \t]*")
# What tokenizers write before a piece: WordPiece marks continuations; byte-level BPE and SentencePiece mark beginnings.
_CONTINUES, _BEGINS = "##", ("Ġ", "▁")
_TOKENS = 1 / 20  # share of marked entries from which on a file counts tokens: words almost never begin with a mark


@dataclass(frozen=True)
class FrequencyTable(Figures):
    """Geometry of word vectors by frequency rank; None where a bin has no word, or a word fewer than k neighbours.

    Args:
        bins: Ranks (start, stop) of each bin, from 0, stop not included.
        words: How many words each bin holds; fewer than stop − start where the vocabulary ends inside it.
        norm: Mean ℓ2 norm in each bin.
        distance: For each k the mean ℓ2 distance to the k nearest words.
        dot: For each k the mean of the k largest dot products with other words.
    """

    bins: tuple[Bin, ...]
    words: tuple[int, ...]
    norm: ByBin
    distance: dict[int, ByBin]
    dot: dict[int, ByBin]


def frequency_table(vectors: object, bins: Sequence[Bin] = PAPER_BINS, ks: Sequence[int] = PAPER_KS) -> FrequencyTable:
    """Measure norms and neighbourhoods of word vectors by frequency rank.

    The paper does not say how neighbours are chosen. Here the distance column uses the nearest by ℓ2 and the dot column
    those of largest dot product, because this agrees with the published numbers. One set of neighbours cannot give both:
    2·a·b = |a|² + |b|² − |a − b|², so neighbours of equal norm .95 at distance .77 have dot product .61, where the paper
    prints .73. In its rarest bin (norm 1.45, distance 1.30) they have 1.26, where it prints 1.63; they would need norm 1.69,
    more than the words themselves, but nearest neighbours are usually closer to the origin.

    Args:
        vectors: (n, d), the most frequent word first. All n can be neighbours, but no word is its own neighbour.
        bins: Ranks (start, stop) from 0; the paper's "(0,100)" is (0, 100).
        ks: Numbers of neighbours to average over.
    """
    x = as_matrix(vectors, "vectors").astype(np.float64)
    _check(bins, ks)
    ks = sorted(set(ks))
    spans = [range(min(start, len(x)), min(stop, len(x))) for start, stop in bins]
    norms = np.linalg.norm(x, axis=1)
    sums = [_neighbour_sums(x, span, min(ks[-1], len(x) - 1)) for span in spans]

    def column(kind: int, k: int) -> ByBin:
        known = k < len(x)
        return tuple(
            float(total[kind, k - 1]) / (k * len(span)) if known and span else None
            for total, span in zip(sums, spans, strict=True)
        )

    return FrequencyTable(
        bins=tuple(bins),
        words=tuple(map(len, spans)),
        norm=tuple(float(norms[span.start : span.stop].mean()) if span else None for span in spans),
        distance={k: column(0, k) for k in ks},
        dot={k: column(1, k) for k in ks},
    )


def read_word_counts(path: str | Path) -> dict[str, int]:
    """Read lines of a word (or token), a space or tab, and its count, in any order; blank lines are skipped."""
    counts: dict[str, int] = {}
    blank = 0
    for number, line in read_lines(path):
        match = _COUNT_LINE.fullmatch(line)
        if match and match[1] not in counts:
            counts[match[1]] = int(match[2])
        elif match:
            raise InputError(
                f"{place(path, number)} counts {reprlib.repr(match[1])} twice; one line per word was expected."
            )
        elif line.strip():
            raise InputError(
                f"{place(path, number)} is {reprlib.repr(line)}; a word, a space or tab, and a whole number were expected."
            )
        else:
            blank += 1
    if not counts:
        raise InputError(
            f"{path} holds no word count; lines of a word, a space or tab, and a whole number were expected."
        )
    if blank:
        logger.info("%s: %d blank line(s) skipped.", path, blank)
    return counts


def rank_tokens(vocabulary: Mapping[str, int], counts: Mapping[str, int], special: Collection[str] = ()) -> list[int]:
    """Return the ids of the counted tokens, the largest count first, equal counts by id.

    Arguments as in ``count_tokens``, which says when a token is counted.
    """
    counted = count_tokens(vocabulary, counts, special)
    return sorted(counted, key=lambda i: (-counted[i], i))


def count_tokens(
    vocabulary: Mapping[str, int], counts: Mapping[str, int], special: Collection[str] = ()
) -> dict[int, int]:
    """Return the count of each token that is counted, by its id.

    Counts of *tokens* (with entries such as "##ing", "Ġthe" or "▁the"; see ``are_token_counts``) are the counts of the
    tokens with the same spelling, pieces of words included. Counts of *words* are the counts of the tokens that are a word.

    A token is a word when it begins one and, without its mark, has the spelling of a word in ``counts``. It begins a word
    when it has no "##" in a WordPiece vocabulary, "Ġ" in a byte-level one (GPT-2, RoBERTa), "▁" in SentencePiece's. The most
    common mark shows the kind of vocabulary; without any mark every token begins a word. A piece that is spelt like a word
    ("un") counts as that word.

    The spelling must be exactly the same. Counts of lower-case words are for uncased vocabularies; with a cased one they
    count only the lower-case tokens, not "The" and "London": use counts of cased words there. Letters outside ASCII match
    in WordPiece and SentencePiece, but not in byte-level vocabularies, which spell them as bytes.

    Args:
        vocabulary: Token to id.
        counts: Word or token to count, as from ``read_word_counts``.
        special: Tokens that are not counted, such as "[CLS]".
    """
    tokens = {token: i for token, i in vocabulary.items() if token not in special}
    if are_token_counts(tokens, counts):
        return {i: counts[token] for token, i in tokens.items() if token in counts}
    return {i: counts[word] for word, i in _whole_words(tokens) if word in counts}


def are_token_counts(vocabulary: Collection[str], counts: Collection[str]) -> bool:
    """Whether these are counts of tokens, not of words: at least one entry in twenty has the vocabulary's mark."""
    mark = _mark(vocabulary)
    return mark is not None and sum(_marked(entry, mark) for entry in counts) >= max(1, _TOKENS * len(counts))


def _mark(tokens: Collection[str]) -> str | None:
    """Return the vocabulary's most common mark; None where there is none."""
    # "####" is a token of GPT-2's vocabulary: only before a letter or digit it is a mark
    common = {mark: sum(_marked(token, mark) for token in tokens) for mark in (_CONTINUES, *_BEGINS)}
    mark = max(common, key=lambda name: common[name])
    return mark if common[mark] else None


def _whole_words(tokens: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (word, id) of the tokens that begin a word, without their mark."""
    mark = _mark(tokens)
    if mark is None or mark == _CONTINUES:
        return ((token, i) for token, i in tokens.items() if not token.startswith(_CONTINUES))
    return ((token.removeprefix(mark), i) for token, i in tokens.items() if token.startswith(mark))


def _marked(token: str, mark: str) -> bool:
    return token.startswith(mark) and token[len(mark) : len(mark) + 1].isalnum()


def _neighbour_sums(x: Matrix, span: range, k: int) -> Matrix:
    """Sum distances and dot products of the words of ``span`` and their 1, 2, … k neighbours, (2, k)."""
    total = np.zeros((2, k))
    step = max(1, _CELLS // len(x))
    squares = np.einsum("nd,nd->n", x, x)
    for start in range(span.start, span.stop if k else span.start, step):
        own = np.arange(start, min(start + step, span.stop))
        dots = x[own] @ x.T
        squared = squares[own, None] + squares - 2 * dots
        squared[own - start, own] = np.inf
        dots[own - start, own] = -np.inf
        distances = np.sqrt(np.maximum(_foremost(squared, k, largest=False), 0))  # rounding may leave −1e-17
        total += np.cumsum([distances.sum(axis=0), _foremost(dots, k, largest=True).sum(axis=0)], axis=1)
    return total


def _foremost(values: Matrix, k: int, largest: bool) -> Matrix:
    """Return the k smallest or largest values of each row, in order."""
    return (
        torch.from_numpy(values).topk(k, largest=largest).values.numpy()
    )  # numpy's partition takes over twice as long


def _check(bins: Sequence[Bin], ks: Sequence[int]) -> None:
    for start, stop in bins:
        if not 0 <= start < stop:
            raise InputError(f"The bin ({start}, {stop}) is empty; a bin is (start, stop) with 0 <= start < stop.")
    if not ks or min(ks) < 1:
        raise InputError(f"ks is {tuple(ks)}; one or more numbers of neighbours, each at least 1, were expected.")
