"""An encoder's tokens: their input embeddings, and how often each of them occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix
from bertflow.data import MINI, mini_folder
from bertflow.encoders.base import TextEncoder
from bertflow.errors import InputError
from bertflow.geometry.frequency import are_token_counts, count_tokens, read_word_counts

COUNTS_FILE = "token_counts.tsv"  # beside an encoder's weights: how often each token occurred in its training


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """How often each token occurs.

    Args:
        by_id: (V,); 0 where it is not known.
        source: Where the counts are from, in words.
        of_words: Whether words were counted, so that nothing is known of pieces of words and punctuation.
    """

    by_id: npt.NDArray[np.int64]
    source: str
    of_words: bool = False

    def ranked(self) -> npt.NDArray[np.int64]:
        """Return the ids of the counted tokens, the most frequent first, among equal ones by id."""
        known = np.flatnonzero(self.by_id)
        return known[np.lexsort((known, -self.by_id[known]))]


def tokenizer_of(encoder: TextEncoder) -> Any:
    """Return the encoder's tokenizer, or None where it has none."""
    own = getattr(encoder, "tokenizer", None)
    return own if own is not None else getattr(getattr(encoder, "model", None), "tokenizer", None)


def has_token_embeddings(encoder: TextEncoder) -> bool:
    """Whether the encoder is a transformer with a tokenizer."""
    return hasattr(_transformer_of(encoder), "get_input_embeddings") and tokenizer_of(encoder) is not None


def input_embeddings(encoder: TextEncoder) -> Matrix:
    """Return the table of token embeddings that a transformer starts from, (V, d)."""
    if not has_token_embeddings(encoder):
        raise InputError(
            f"{type(encoder).__name__} has no table of token embeddings; a transformer is needed for that."
        )
    return _transformer_of(encoder).get_input_embeddings().weight.detach().float().cpu().numpy()


def _transformer_of(encoder: TextEncoder) -> Any:
    model: Any = getattr(encoder, "model", None)
    return getattr(model, "transformers_model", model)  # a SentenceTransformer holds its transformer there


def token_ids(encoder: TextEncoder, sentences: Sequence[str]) -> list[list[int]]:
    """Return the ids of each sentence's tokens, without special ones, cut where the encoder cuts."""
    tokenizer = tokenizer_of(encoder)
    limit = getattr(encoder, "max_length", None)
    options = {"truncation": True, "max_length": limit} if limit else {}
    return tokenizer(list(sentences), add_special_tokens=False, **options)["input_ids"]


def count_tokens_of(
    encoder: TextEncoder, ids: Sequence[Sequence[int]], size: int, counts: str | Path | None = None
) -> TokenCounts:
    """Return how often each token occurs: by a file, by the encoder's own file, or in the corpus itself.

    Args:
        encoder: The encoder.
        ids: The tokens of the corpus, as from ``token_ids``.
        size: V.
        counts: A file of ``word count`` or ``token count`` lines. By default ``token_counts.tsv`` in the encoder's folder,
            where there is one (mini has it), and else the corpus is counted.
    """
    own = encoder_folder(encoder) / COUNTS_FILE
    if counts is None and not own.is_file():
        flat = np.fromiter((i for row in ids for i in row), dtype=np.int64)
        return TokenCounts(np.bincount(flat, minlength=size), "this corpus")
    path = own if counts is None else Path(counts)
    tokenizer, listed = tokenizer_of(encoder), read_word_counts(path)
    vocabulary = tokenizer.get_vocab()
    found = count_tokens(vocabulary, listed, special=tokenizer.all_special_tokens)
    by_id = np.zeros(size, dtype=np.int64)
    by_id[list(found)] = list(found.values())
    if np.count_nonzero(by_id) < 2:
        raise InputError(
            f"Fewer than two tokens of {encoder.name!r} are counted in {path}: are they of one language, and both lower-case?"
        )
    source = f"{path.name} of {encoder.name}" if counts is None else path.name
    return TokenCounts(by_id, source, of_words=not are_token_counts(vocabulary, listed))


def encoder_folder(encoder: TextEncoder) -> Path:
    """Return where the encoder's files lie, if it is a folder or the one that ships inside."""
    return mini_folder() if encoder.name == MINI and not Path(MINI).is_dir() else Path(encoder.name)
