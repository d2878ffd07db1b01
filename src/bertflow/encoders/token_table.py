"""Sentence vectors from single tokens: each token is encoded once, alone; a text is the weighted mean of its tokens.

The paper finds word frequency to be what distorts the space, but treats it only after pooling. Here it is treated before:
a token weighs as much as it surprises, −log p(token) in the user's own text, and punctuation weighs nothing. No text goes
through the transformer any more, only its vocabulary does, once; so encoding is a table look-up.

A mean of vectors keeps little of which vectors they were. So it is not a token's vector that is averaged (the average of
embedding and last layer, each standardised) but random Fourier features of it (Rahimi & Recht, 2007): the dot product of two
means is then the mean of a Gaussian kernel over all pairs of tokens, to which near tokens count and far ones do not.
`results/beyond.md` tells what else was tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import safetensors.numpy
import torch
from tokenizers import Tokenizer
from tqdm.auto import tqdm

from bertflow.arrays import Matrix
from bertflow.encoders.base import TokenRows, View
from bertflow.encoders.modules import TokenMeans, ViewModule, surrounding
from bertflow.encoders.pooling import LayerReader
from bertflow.errors import InputError, ModelFolderError
from bertflow.texts import check_sentences, word_tokens

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

UNSEEN = 0.5  # how often a token that the text lacks is taken to occur
TOKENS_AT_ONCE = 512
TEXTS_AT_ONCE = 8192
FEATURES = 1024  # of a token; fewer lose, more gain nothing
TABLE, TOKENIZER = "table.safetensors", "tokenizer.json"


_KEPT = 2  # encoders whose vocabulary stays in memory, for a next fit with other settings
_VOCABULARIES: dict[str, tuple[Matrix, Mask]] = {}


class TokenTable(View):
    """A table of token vectors and how much each token counts.

    Args:
        features: Dimensions of the vectors.
        random_state: Seeds them.

    Attributes:
        tokenizer: Cuts texts into tokens.
        vectors: Features of each token, (tokens, k).
        weights: How much each token counts, (tokens,).
        nothing: The vector of a text without any token, (k,).

    Example:
        >>> view = TokenTable().fit(Encoder("mini"), ["A sentence of the corpus.", "And one more."])
        >>> view.encode(["One sentence."]).shape
        (1, 1024)
    """

    learns: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = False
    tokenizer: Tokenizer
    vectors: Matrix
    weights: Matrix
    nothing: Matrix

    def __init__(self, features: int = FEATURES, *, random_state: int = 0) -> None:
        self.features = features
        self.random_state = random_state

    def _bind(self, encoder: Any, show_progress_bar: bool) -> None:
        if not has_fast_tokenizer(encoder):
            raise InputError(
                f"Vectors of single tokens need a transformer with a fast tokenizer, given by its name or folder; "
                f"{getattr(encoder, 'name', encoder)!r} is none. Use a recipe without them, such as 'whitening' or 'flow'."
            )
        tokens, words = _vocabulary(encoder, show_progress_bar)
        rows = self._make_vectors(tokens, words)
        tokenizer = Tokenizer.from_str(encoder.tokenizer.backend_tokenizer.to_str())
        self._take(tokenizer, rows[:-1], words.astype(np.float32), rows[-1])

    def _make_vectors(self, tokens: Matrix, words: Mask) -> Matrix:
        """Return the rows of the table from the tokens' vectors (t + 1, d), the last one of no token."""
        return fourier_features(tokens, words, self.random_state, self.features)

    def _take(self, tokenizer: Tokenizer, vectors: Matrix, weights: Matrix, nothing: Matrix) -> None:
        self.tokenizer, self.vectors, self.weights, self.nothing = tokenizer, vectors, weights, nothing
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.dim = int(vectors.shape[1])
        self.__dict__.pop("fingerprint", None)

    def learn(self, texts: Iterable[str]) -> None:
        """Weigh every token by its surprise in ``texts``: -log of its share of all tokens."""
        counts, stream = np.zeros(len(self.vectors)), iter(texts)
        while part := list(islice(stream, TEXTS_AT_ONCE)):
            counts += np.bincount(self._tokens(check_sentences(part))[0], minlength=len(self.vectors))
        self.weights = self._weigh(counts).astype(np.float32)
        self.__dict__.pop("fingerprint", None)

    def _weigh(self, counts: Matrix) -> Matrix:
        """Return how much each token counts (tokens,), from how often the text has it."""
        counts = counts + UNSEEN
        return -np.log(counts / counts.sum()) * (self.weights > 0)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vectors, the weights and the tokenizer."""
        digest = hashlib.sha256(self.tokenizer.to_str().encode())
        for array in (self.vectors, self.weights, self.nothing):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, k); of texts without any word, all tokens count alike."""
        import scipy.sparse

        texts = check_sentences(texts)
        tokens, lengths = self._tokens(texts)
        text = np.repeat(np.arange(len(texts)), lengths)
        weights = self._shares(text, tokens, lengths)
        shape = len(texts), len(self.vectors)
        vectors = scipy.sparse.csr_array((weights.astype(np.float32), (text, tokens)), shape) @ self.vectors
        vectors[lengths == 0] = self.nothing
        return vectors

    def _shares(self, text: Numbers, tokens: Numbers, lengths: Numbers) -> Matrix:
        """Return the share of its text's vector that each token is, where token i stands in text ``text[i]``."""
        total = np.bincount(text, self.weights[tokens], len(lengths))
        return np.where(total[text] > 0, self.weights[tokens] / np.maximum(total, 1e-12)[text], 1 / lengths[text])

    def _tokens(self, texts: list[str]) -> tuple[Numbers, Numbers]:
        """Return the tokens of all texts in a row, and how many each text has."""
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths

    def as_table(self) -> TokenRows | None:
        """Return the table."""
        return TokenRows(self.tokenizer, self.vectors, self.weights, self.nothing)

    def as_module(self, pad_token_id: int) -> ViewModule:
        """Return the table as a torch module; it finds a text's own tokens between the special ones."""
        table = self.as_table()
        if table is None:
            return super().as_module(pad_token_id)
        half = table.vectors.astype(np.float16)
        vectors = half if np.array_equal(half, table.vectors) else table.vectors
        rows = (torch.tensor(np.asarray(array)) for array in (vectors, table.weights, table.nothing))
        before, after = surrounding(self.tokenizer)
        return TokenMeans(*rows, before=before, after=after, padding=pad_token_id)

    def save(self, folder: Path) -> None:
        """Write the table and the tokenizer to ``folder``; vectors in half precision, as they will be used again."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"vectors": self.vectors.astype(np.float16), "weights": self.weights, "nothing": self.nothing}
        safetensors.numpy.save_file(arrays, folder / TABLE)
        self.tokenizer.save(str(folder / TOKENIZER))

    def restore(self, folder: Path, described: dict[str, Any], encoder: Any) -> None:
        """Read what ``save`` wrote; the encoder itself is not needed."""
        self.encoder = encoder
        try:
            with safetensors.safe_open(folder / TABLE, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in ("vectors", "weights", "nothing")}
            arrays["vectors"] = arrays["vectors"].astype(np.float32)
            self._take(Tokenizer.from_file(str(folder / TOKENIZER)), **arrays)
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFolderError(
                f"{folder} holds no table of token vectors ({error}): copy it again, or fit the model again."
            ) from None


def has_fast_tokenizer(encoder: Any) -> bool:
    """Whether an encoder has tokens whose vectors can be had: a transformer with a fast tokenizer."""
    return hasattr(encoder, "encode_views") and bool(encoder.tokenizer.is_fast)


def _vocabulary(encoder: Any, show_progress_bar: bool) -> tuple[Matrix, Mask]:
    """Vectors of each token of an encoder's vocabulary alone and, last, of no token (t + 1, d); which are words (t,)."""
    key = encoder.fingerprint
    if key not in _VOCABULARIES:
        words = word_tokens(encoder.tokenizer)
        tokens = encode_alone(encoder, range(len(encoder.tokenizer)), show_progress_bar=show_progress_bar)
        layers = np.concatenate([tokens, encode_alone(encoder, [None])], axis=1)
        while len(_VOCABULARIES) >= _KEPT:
            _VOCABULARIES.pop(next(iter(_VOCABULARIES)))
        _VOCABULARIES[key] = standardized_average(layers, words), words
    return _VOCABULARIES[key]


@torch.inference_mode()
def encode_alone(encoder: Any, tokens: Sequence[int | None], *, show_progress_bar: bool = False) -> Matrix:
    """Vectors (2, n, d) of single tokens between the model's special ones, of its embedding and last layer; None: no token."""
    (before, after), padding = surrounding_ids(encoder.tokenizer), encoder.tokenizer.pad_token_id
    found = np.empty((2, len(tokens), encoder.dim), dtype=np.float32)
    bar = tqdm(total=len(tokens), desc="encoding the vocabulary", disable=not show_progress_bar)
    with bar, LayerReader(encoder.model, "embedding-last-avg") as reader:
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            part = tokens[start : start + TOKENS_AT_ONCE]
            rows = [[*before, *([] if token is None else [token]), *after] or [padding] for token in part]
            ids = torch.tensor(rows, device=encoder.device)
            states = reader(ids, torch.ones_like(ids))
            for layer in (0, -1):
                found[layer, start : start + len(part)] = states[layer].float().mean(1).cpu().numpy()
            bar.update(len(part))
    return found


def standardized_average(layers: Matrix, words: Mask) -> Matrix:
    """Average (n, d) of layers (l, n, d), each dimension of each brought to the same deviation over the words' vectors.

    Without it a layer of long vectors, or a few dimensions of it, would be all there is: two of SmolLM2's 576 have two thirds
    of its last layer's variance.

    Args:
        layers: Vectors of tokens, those of ``words`` first.
        words: Which of them are words.
    """
    lexicon = layers[:, : len(words)][:, words] if words.any() else layers
    deviation = lexicon.std(axis=1, keepdims=True)
    return ((layers - lexicon.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1)).mean(axis=0)


def fourier_features(vectors: Matrix, words: Mask, seed: int, count: int = FEATURES, width: float = 1.0) -> Matrix:
    """Random Fourier features (n, count) of token vectors (n, d); the kernel is ``width`` times as wide as words lie apart.

    ``words`` says which of the first vectors are those of words.
    """
    lexicon = vectors[: len(words)][words] if words.any() else vectors
    unit = width * np.sqrt(lexicon.var(axis=0).sum()) or 1.0
    from sklearn.kernel_approximation import RBFSampler

    sampler = RBFSampler(gamma=0.5, n_components=count, random_state=seed)
    # half precision, since that is what is kept: a model that was loaded gives the same vectors
    return sampler.fit_transform((vectors - lexicon.mean(axis=0)) / unit).astype(np.float16).astype(np.float32)


def surrounding_ids(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens that stand before and after every text."""
    empty, letter = tokenizer("")["input_ids"], tokenizer("a")["input_ids"]
    count = next((i for i, (a, b) in enumerate(zip(empty, letter, strict=False)) if a != b), len(empty))
    return empty[:count], empty[count:]
