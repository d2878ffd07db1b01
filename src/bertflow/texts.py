"""Texts as users hand them in: checked, and sorted into batches of like length. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertflow.errors import InputError


def check_sentences(sentences: Sequence[str]) -> list[str]:
    """Return the texts as a list, refusing what is not text."""
    if isinstance(sentences, str | bytes):
        raise InputError("Many texts were wanted, as a list; got one. Write [text].")
    try:
        texts = list(sentences)
    except TypeError:
        raise InputError(f"Many texts were wanted, as a list; got {type(sentences).__name__}.") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"Text {i} is {text!r:.60} of type {type(text).__name__}; every text must be a str.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"Text {i}, {text!r:.60}, has half a character (a lone surrogate): read it as UTF-8."
            ) from None
    if not texts:
        raise InputError("There are no texts: the list is empty.")
    return texts


def batches_by_length(lengths: Sequence[int], token_budget: int, batch_size: int | None = None) -> Iterator[list[int]]:
    """Yield row numbers, longest first, so that rows × longest row stays within the budget (one row always goes).

    A batch that is half full ends where the lengths change: of many texts, most batches then need no padding at all.
    """
    batch: list[int] = []
    for row in np.argsort(lengths, kind="stable")[::-1].tolist():
        longest = lengths[batch[0]] if batch else 0
        full = (len(batch) + 1) * longest > token_budget or len(batch) == batch_size
        if batch and (full or (lengths[row] < longest and 2 * len(batch) * longest >= token_budget)):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def word_tokens(tokenizer: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each token (tokens,) of a vocabulary has a letter or a digit, or is part of a character; special ones: no."""
    special = set(tokenizer.all_special_ids)
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    words = [any(c.isalnum() or c == "\ufffd" for c in text) for text in texts]
    return np.array([word and token not in special for token, word in enumerate(words)])
