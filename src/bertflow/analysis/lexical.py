"""Does similarity just follow the words? Edit distance between the sentences of a pair (paper, Table 6 and Figure 2)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError, require

Unit: TypeAlias = Literal["words", "characters"]
Tokenize: TypeAlias = Callable[[str], Sequence[Hashable]]
Vector: TypeAlias = npt.NDArray[np.floating[Any]]
Counts: TypeAlias = npt.NDArray[np.int64]


def edit_distances(
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    unit: Unit = "words",
    tokenize: Tokenize | None = None,
) -> Counts:
    """Count the insertions, deletions and substitutions that turn one sentence of each pair into the other.

    The text is taken as it is, upper case and punctuation too. The paper's −24.61 for gold is met by words on the
    STS-B dev set as SentEval tokenises it.

    Args:
        sentences1: The first sentence of each pair, length n.
        sentences2: The second sentence of each pair, length n.
        unit: ``"words"``, which is what white space separates, or ``"characters"``.
        tokenize: Splits a sentence into units of its own kind, such as WordPieces, instead of ``unit``.

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

    Near −100, a similarity only counts shared words; that of people's gold scores says how much of it is right.
    """
    from scipy.stats import spearmanr  # a second of import that edit distances do not need

    a, b = np.asarray(similarities, dtype=np.float64), np.asarray(distances, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2:
        raise InputError(f"Similarities {a.shape} and distances {b.shape} must both be (n,), of at least two pairs.")
    for values, what in ((a, "similarities"), (b, "distances")):
        if not np.isfinite(values).all():
            raise InputError(f"The {what} hold NaN or infinity: remove or mend those pairs.")
        if values.min() == values.max():
            raise InputError(f"All {len(values)} {what} are {values[0]:g}; a correlation needs some that differ.")
    return 100 * float(spearmanr(a, b).statistic)


def _splitter(unit: str) -> Tokenize:
    if unit not in get_args(Unit):
        raise InputError(f"There is no unit {unit!r}; use {' or '.join(get_args(Unit))}, or give tokenize.")
    return str.split if unit == "words" else str
