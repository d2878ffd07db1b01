"""Does similarity only follow shared words? Edit distance between the sentences of a pair (paper, Table 6, Figure 2)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError, require
from bertflow.geometry.association import columns, spearman
from bertflow.geometry.figures import Figures

Unit: TypeAlias = Literal["words", "characters"]
Tokenize: TypeAlias = Callable[[str], Sequence[Hashable]]
Vector: TypeAlias = npt.NDArray[np.floating[Any]]
Counts: TypeAlias = npt.NDArray[np.int64]

NEAR = 4  # Figure 2 highlights pairs at most this many edits apart


@dataclass(frozen=True)
class LexicalSummary(Figures):
    """Correlation of one similarity with edit distance, Spearman ×100; None where it is undefined.

    Args:
        pairs: How many.
        near: Pairs at most this many edits apart are called near.
        near_pairs: How many of them.
        correlation: With edit distance, over all pairs (Table 6).
        near_correlation: The same for near pairs, where in Figure 2 the raw similarity follows the words most.
        near_similarity: Mean similarity of near pairs.
        far_similarity: Mean similarity of the others.
        gold_correlation: With people's scores.
    """

    pairs: int
    near: int
    near_pairs: int
    correlation: float | None
    near_correlation: float | None
    near_similarity: float | None
    far_similarity: float | None
    gold_correlation: float | None


def edit_distances(
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    unit: Unit = "words",
    tokenize: Tokenize | None = None,
) -> Counts:
    """Count the insertions, deletions and substitutions that turn one sentence of each pair into the other.

    The text is not changed: upper case and punctuation count. With words, on the STS-B dev set as SentEval tokenises it,
    gold scores have the paper's −24.61.

    Args:
        sentences1: The first sentence of each pair, length n.
        sentences2: The second sentence of each pair, length n.
        unit: ``"words"``, separated by white space, or ``"characters"``.
        tokenize: Splits a sentence into other units, such as WordPieces.

    Returns:
        Distances, (n,).

    Example:
        >>> edit_distances(["a red house", "tea"], ["the red house stands", "tea"]).tolist()
        [2, 0]
    """
    if isinstance(sentences1, str) or isinstance(sentences2, str):
        raise InputError("Many pairs were wanted, as two lists of sentences; got one text. Write [text].")
    if len(sentences1) != len(sentences2):
        raise InputError(f"Pairs need as many first as second sentences; {len(sentences1)} and {len(sentences2)} came.")
    split = tokenize or _splitter(unit)
    distance = require("rapidfuzz.distance.Levenshtein", extra="evaluation").distance
    pairs = zip(sentences1, sentences2, strict=True)
    return np.array([distance(split(first), split(second)) for first, second in pairs], dtype=np.int64)


def lexical_correlation(similarities: Vector | Sequence[float], distances: Counts | Sequence[int]) -> float:
    """Spearman's correlation ×100 of similarities (n,) with edit distances (n,).

    Near −100, a similarity only counts shared words. The correlation of people's gold scores says what would be right.
    """
    found = spearman(similarities, distances)
    if found is None:
        raise InputError("All similarities, or all distances, are the same; a correlation needs some that differ.")
    return found


def lexical_summary(
    similarities: Vector | Sequence[float],
    distances: Counts | Sequence[int],
    gold: Vector | Sequence[float] | None = None,
    near: int = NEAR,
) -> LexicalSummary:
    """Summarise how similarities (n,) follow edit distances (n,), and people's scores (n,) if they are given.

    Args:
        similarities: Of each pair: cosines, or people's scores themselves.
        distances: As from ``edit_distances``.
        gold: People's scores.
        near: Pairs at most this many edits apart are also summarised separately, as in Figure 2.
    """
    values, edits = columns(similarities, distances)
    close = edits <= near

    def mean(chosen: npt.NDArray[np.bool_]) -> float | None:
        return float(values[chosen].mean()) if chosen.any() else None

    return LexicalSummary(
        pairs=len(values),
        near=near,
        near_pairs=int(close.sum()),
        correlation=spearman(values, edits),
        near_correlation=spearman(values[close], edits[close]) if close.any() else None,
        near_similarity=mean(close),
        far_similarity=mean(~close),
        gold_correlation=None if gold is None else spearman(values, gold),
    )


def _splitter(unit: str) -> Tokenize:
    if unit not in get_args(Unit):
        raise InputError(f"There is no unit {unit!r}; use {' or '.join(get_args(Unit))}, or give tokenize.")
    return str.split if unit == "words" else str
