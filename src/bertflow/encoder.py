"""Text → (n, d): any Hugging Face model, a local folder, the mini encoder that ships inside, or a SentenceTransformer."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from bertflow.arrays import Matrix, choose_device
from bertflow.data import MINI, mini_folder
from bertflow.errors import InputError, TruncationWarning
from bertflow.pooling import check_pooling, pool
from bertflow.pretrained import load_pretrained, quiet_transformers
from bertflow.sentences import batches_by_length as batches_by_length
from bertflow.sentences import check_sentences as check_sentences
from bertflow.wordvectors import AveragedWordVectors

DEFAULT_POOLING = "first-last-avg"


class TextEncoder(Protocol):
    """What bertflow asks of an encoder: this much, and a flow can be fitted on top of it."""

    name: str
    dim: int

    @property
    def fingerprint(self) -> str:
        """Identify weights and settings: equal fingerprints give equal vectors."""

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to (n, d)."""

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load it again, as JSON."""


class Encoder:
    """A frozen transformer with a pooling.

    Args:
        model: ``"mini"`` (ships with bertflow, no network), a Hugging Face id, or a local folder.
        pooling: One of ``bertflow.POOLINGS``; the default gives the paper's figures.
        max_length: Tokens read of each text; longer ones are cut with one warning. Default: what the model allows.
        device: Default: cuda, then mps, then cpu.
        dtype: Of the transformer. Default: float32 on a CPU or mps; on cuda the checkpoint's own. Vectors are float32 always.
        token_budget: Tokens a batch, padding included. Default: 2 048 on a CPU, 65 536 elsewhere.
        revision: A branch, tag or commit of the model on the hub.
        token: Access token for private models.
        local_files_only: Never ask the hub.

    Example:
        >>> Encoder("mini").encode(["One sentence.", "And another."]).shape
        (2, 256)
    """

    def __init__(
        self,
        model: str | Path = MINI,
        pooling: str = DEFAULT_POOLING,
        *,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        token_budget: int | None = None,
        revision: str | None = None,
        token: str | None = None,
        local_files_only: bool = False,
    ) -> None:
        self.name = str(model)
        self.pooling = check_pooling(pooling)
        self.device = choose_device(device)
        path = str(mini_folder()) if self.name == MINI and not Path(MINI).is_dir() else self.name
        hub = {"revision": revision, "token": token, "local_files_only": local_files_only}
        self.tokenizer, self._loaded = load_pretrained(path, _dtype(dtype, self.device), hub)
        encoder = self._loaded.get_encoder() if self._loaded.config.is_encoder_decoder else self._loaded
        self.model = encoder.eval().requires_grad_(False).to(self.device)
        self.revision = getattr(self.model.config, "_commit_hash", None) or revision
        self.dim = int(self.model.config.hidden_size)
        self.max_length = _max_length(max_length, self.tokenizer, self.model)
        self.token_budget = token_budget or (2048 if self.device.type == "cpu" else 65_536)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, the vocabulary and the settings."""
        digest = hashlib.sha256(f"{self.pooling} {self.max_length}".encode())
        _digest_weights(digest, self.model)
        digest.update(repr(sorted(self.tokenizer.get_vocab().items())).encode())
        return digest.hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load this encoder again."""
        return {
            "kind": "transformers",
            "name": self.name,
            "revision": self.revision,
            "pooling": self.pooling,
            "max_length": self.max_length,
            "dim": self.dim,
            "fingerprint": self.fingerprint,
        }

    def save(self, folder: str | Path) -> None:
        """Write the transformer and its tokenizer to ``folder``.

        A decoder goes with it, although unused: an encoder alone is saved in a layout that transformers cannot load again.
        """
        with quiet_transformers():
            self._loaded.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d), in the order of the input.

        Texts are sorted by length and batched by tokens, equal ones are encoded once, and in float32 a text's vector does
        not depend on its neighbours (within 1e-5). An empty text gets the vector of the model's special tokens.
        """
        texts = check_sentences(sentences)
        distinct = list(dict.fromkeys(texts))
        ids = self._tokenize(distinct)
        vectors = np.empty((len(distinct), self.dim), dtype=np.float32)
        bar = tqdm(total=len(distinct), desc=f"encoding with {Path(self.name).name}", disable=not show_progress_bar)
        with bar, torch.inference_mode():
            for rows in batches_by_length([len(row) for row in ids], self.token_budget):
                vectors[rows] = self._encode_batch([ids[row] for row in rows]).cpu().numpy()
                bar.update(len(rows))
        if len(distinct) == len(texts):
            return vectors
        place = {text: row for row, text in enumerate(distinct)}
        return vectors[[place[text] for text in texts]]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encodings: Any = self.tokenizer(
            texts, truncation=True, max_length=self.max_length, return_attention_mask=False, return_token_type_ids=False
        )
        cut = sum(bool(encoding.overflowing) for encoding in encodings.encodings or ())
        if cut:
            warnings.warn(
                f"{cut} of {len(texts)} texts have more than {self.max_length} tokens; only the first {self.max_length} "
                "of each were read. Split long texts, or raise max_length if the model allows it.",
                TruncationWarning,
                stacklevel=3,
            )
        # A tokenizer without special tokens gives an empty text no token at all, and there is no vector of nothing.
        return [ids or [self.tokenizer.pad_token_id] for ids in encodings["input_ids"]]

    def _encode_batch(self, rows: list[list[int]]) -> Tensor:
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        output = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        return pool(output.hidden_states, mask, self.pooling)


class SentenceTransformerEncoder:
    """A ``SentenceTransformer`` with its own pooling, as an encoder for the flow.

    Args:
        model: The loaded model.
        name: What to call it when saving; default: the id or folder it was loaded from.
    """

    def __init__(self, model: Any, name: str | None = None) -> None:
        self.model = model
        card, transformer = getattr(model, "model_card_data", None), getattr(model, "transformers_model", None)
        source = getattr(getattr(transformer, "config", None), "_name_or_path", None)
        self.name = str(name or getattr(card, "base_model", None) or source or "unnamed")
        self.dim = int(model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all weights and of the modules' classes and settings."""
        digest = hashlib.sha256(f"{self.model.max_seq_length} {self.model!r}".encode())
        _digest_weights(digest, self.model)
        return digest.hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load this encoder again."""
        return {
            "kind": "sentence-transformers",
            "name": self.name,
            "dim": self.dim,
            "fingerprint": self.fingerprint,
        }

    def save(self, folder: str | Path) -> None:
        """Write the model to ``folder``."""
        with quiet_transformers():
            self.model.save_pretrained(str(folder))

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        texts = check_sentences(sentences)
        return np.asarray(self.model.encode(texts, show_progress_bar=show_progress_bar), dtype=np.float32)


def as_encoder(encoder: Any, pooling: str | None = None, **options: Any) -> TextEncoder:
    """Return an encoder for what users hand in: a name, folder or word-vector file, a SentenceTransformer, an encoder."""
    if isinstance(encoder, str | Path) and Path(encoder).is_file():
        encoder = AveragedWordVectors(encoder)
        options = {}  # words have no device and no length
    if isinstance(encoder, str | Path):
        return Encoder(encoder, pooling or DEFAULT_POOLING, **options)
    if pooling is not None or options:
        raise InputError(
            f"{type(encoder).__name__} brings its own pooling and settings; leave out "
            f"{', '.join([*(['pooling'] if pooling else []), *options])}."
        )
    if hasattr(encoder, "get_embedding_dimension") and hasattr(encoder, "encode"):
        return SentenceTransformerEncoder(encoder)
    if hasattr(encoder, "fingerprint") and hasattr(encoder, "encode"):
        return encoder
    raise InputError(
        f"An encoder is a model name, a folder, a SentenceTransformer or a bertflow Encoder; got {type(encoder).__name__}."
    )


def _digest_weights(digest: hashlib._Hash, model: torch.nn.Module) -> None:
    """Add a model's weights to a hash, as float32: a float16 checkpoint is the same one on a CPU and on cuda."""
    for name, value in sorted(model.state_dict().items()):
        if ".pooler." in name:  # unused, and drawn anew at each load where the checkpoint lacks it
            continue
        digest.update(name.encode())
        exact = value.detach().float() if value.is_floating_point() else value
        digest.update(exact.cpu().contiguous().flatten().view(torch.uint8).numpy())


def _dtype(dtype: torch.dtype | None, device: torch.device) -> torch.dtype | str:
    """Half precision on a CPU is over ten times slower; transformers would keep a float16 checkpoint so."""
    return dtype or ("auto" if device.type == "cuda" else torch.float32)


def _max_length(asked: int | None, tokenizer: Any, model: Any) -> int:
    limits = [tokenizer.model_max_length]
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions:
        limits.append(positions - _unused_positions(model))
    limit = int(min(limit for limit in [*limits, 10**6] if limit > 0))
    if asked is None:
        return min(limit, 512)
    if not (isinstance(asked, int) and 3 <= asked <= limit):
        raise InputError(f"max_length must lie between 3 and {limit}, what the model reads; it was {asked!r}.")
    return asked


def _unused_positions(model: Any) -> int:
    """RoBERTa's kind (CamemBERT, MPNet, Longformer…) counts positions from the padding id on: its table has a padding row."""
    tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    padding = next((table.padding_idx for table in tables if isinstance(table, torch.nn.Embedding)), None)
    return 0 if padding is None else int(padding) + 1
