"""Text → (n, d) by a frozen transformer: any Hugging Face model, a local folder, or the mini encoder that ships inside."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm.auto import tqdm

from bertflow.arrays import Matrix, choose_device
from bertflow.data import MINI, MINI_VERSION, mini_folder
from bertflow.encoders.base import Reading, Template
from bertflow.encoders.batching import Batch, pad
from bertflow.encoders.packing import pack_linear_layers
from bertflow.encoders.pooling import LayerReader, States, check_pooling
from bertflow.encoders.pretrained import architecture, load_pretrained, quiet_transformers
from bertflow.encoders.templates import OneReading, blanked, passes_of
from bertflow.encoders.threads import compute_ahead
from bertflow.errors import InputError, TruncationWarning
from bertflow.texts import batches_by_length as batches_by_length
from bertflow.texts import check_sentences as check_sentences
from bertflow.texts import word_tokens

DEFAULT_POOLING = "first-last-avg"
# All but cuDNN's, which compiles itself anew for every shape of batch: 60 ms each (H200, torch 2.11).
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Encoder:
    """A frozen transformer with a pooling.

    Args:
        model: ``"mini"`` (ships with bertflow, no network), a Hugging Face id, or a local folder.
        pooling: One of ``bertflow.POOLINGS``; the default gives the paper's figures.
        max_length: Tokens read of each text; longer ones are cut with one warning. Default: what the model allows.
        device: Default: cuda, then mps, then cpu.
        dtype: Of the transformer. Default: float32 on a CPU or mps; on cuda the checkpoint's own. Vectors are float32 always.
        words_only: Pool only tokens that have a letter or a digit: no punctuation, no special tokens (but ``cls`` stays).
        token_budget: Tokens a batch, padding included. Default: 2 048 on a CPU, 65 536 elsewhere.
        revision: A branch, tag or commit of the model on the hub.
        token: Access token for private models.
        local_files_only: Never ask the hub.
        trust_remote_code: Run Python code that comes with the model. Only if you have read it; it is never remembered.

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
        words_only: bool = False,
        token_budget: int | None = None,
        revision: str | None = None,
        token: str | None = None,
        local_files_only: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        self.name = MINI if str(model) == MINI_VERSION else str(model)
        self.pooling = check_pooling(pooling)
        self.device = choose_device(device)
        path = str(mini_folder()) if self.name == MINI and not Path(MINI).is_dir() else self.name
        hub: dict[str, Any] = {"revision": revision, "token": token, "local_files_only": local_files_only}
        hub["trust_remote_code"] = trust_remote_code
        self.tokenizer, self._loaded = load_pretrained(path, _dtype(dtype, self.device), hub)
        encoder = self._loaded.get_encoder() if self._loaded.config.is_encoder_decoder else self._loaded
        self.model = encoder.eval().requires_grad_(False).to(self.device)
        if self.device.type == "cpu":
            pack_linear_layers(self.model)
        self.revision = getattr(self.model.config, "_commit_hash", None) or revision
        self.dim = int(self.model.config.hidden_size)
        self.max_length = _max_length(max_length, self.tokenizer, self.model)
        self.words_only = words_only
        self.token_budget = token_budget or (2048 if self.device.type == "cpu" else 65_536)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, the vocabulary and the settings."""
        digest = hashlib.sha256(f"{self.pooling} {self.max_length}{' words only' * self.words_only}".encode())
        digest_weights(digest, self.model)
        digest.update(repr(sorted(self.tokenizer.get_vocab().items())).encode())
        return digest.hexdigest()[:32]

    @cached_property
    def architecture(self) -> str:
        """``"masked"``: it fills in masks; ``"decoder"``: it reads from left to right; else ``"other"``."""
        return architecture(self._loaded.config, self.tokenizer)

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load this encoder again."""
        return {
            "class": "Encoder",
            "name": MINI_VERSION if self.name == MINI else self.name,
            "revision": self.revision,
            "pooling": self.pooling,
            "max_length": self.max_length,
            "words_only": self.words_only,
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
        reading = Reading(self.pooling, self.words_only)
        return self.encode_views(sentences, [reading], show_progress_bar=show_progress_bar)[0]

    def to(self, device: str | torch.device) -> Encoder:
        """Move the transformer to a device. Returns itself."""
        self.device = choose_device(device)
        self.model.to(self.device)
        self.__dict__.pop("_words", None)
        return self

    def encode_views(
        self,
        sentences: Sequence[str],
        views: Sequence[Reading],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> list[Matrix]:
        """Read n texts in several ways; return (n, d) of each. One pass gives all readings of the same tokens.

        Args:
            sentences: n texts.
            views: What is read; pooling and words of the encoder itself do not matter.
            batch_size: The largest number of texts in a pass; by default the token budget alone decides.
            show_progress_bar: Show progress.
        """
        texts = check_sentences(sentences)
        distinct, passes = list(dict.fromkeys(texts)), passes_of(views)
        limits = [self._longest_text(readings[0].template) for readings in passes]
        vectors, cut = np.zeros((len(distinct), len(views), self.dim), dtype=np.float32), []
        what = f"encoding with {Path(self.name).name}"
        with tqdm(total=len(distinct) * len(passes), desc=what, disable=not show_progress_bar) as bar:
            for readings in passes:
                cut.append(self._run(distinct, readings, vectors, batch_size, bar))
        self._warn_of_cut_texts(cut, limits, len(distinct))
        if len(distinct) < len(texts):
            place = {text: row for row, text in enumerate(distinct)}
            vectors = vectors[[place[text] for text in texts]]
        return [np.ascontiguousarray(vectors[:, view]) for view in range(len(views))]

    def _run(
        self, texts: list[str], readings: list[OneReading], vectors: Matrix, batch_size: int | None, bar: tqdm[Any]
    ) -> int:
        """Add what one pass gives to the vectors (n, readings, d); return how many texts were cut."""
        layers, cut = {layer for one in readings for layer in one.layers}, 0
        with LayerReader(self.model, layers=tuple(layers)) as reader, sdpa_kernel(ATTENTION):
            encode_batch = partial(self._encode_batch, reader, readings)
            batches = self._batches(texts, readings[0].template, batch_size)
            for batch, (found, arrived) in compute_ahead(encode_batch, batches, self.device):
                if arrived is not None:
                    arrived.synchronize()
                for number, one in enumerate(readings):
                    weight = one.template.weight if one.template else 1.0
                    vectors[batch.rows, one.column] += weight * found[number].numpy()
                cut += batch.cut
                bar.update(len(batch.rows))
        return cut

    def _warn_of_cut_texts(self, cut: list[int], limits: list[int], texts: int) -> None:
        """Warn once, of the pass that cut most."""
        most, limit = max(zip(cut, limits, strict=True))
        if most:
            beside = "" if limit == self.max_length else ", as many as fit beside the prompt"
            warnings.warn(
                f"{most} of {texts} texts have more than {limit} tokens{beside}; only the first {limit} of each were read. "
                "Split long texts, or raise max_length if the model allows it.",
                TruncationWarning,
                stacklevel=4,
            )

    def _longest_text(self, template: Template | None) -> int:
        """How many tokens of a text are read; without a template, special ones included."""
        if template is None:
            return self.max_length
        longest = (self.max_length - template.length) // template.copies
        if longest < 1:
            raise InputError(
                f"The prompt has {template.length} tokens, and {self.name!r} reads {self.max_length}: no text fits in. Write "
                "a shorter prompt, or raise max_length if the model allows it."
            )
        return longest

    def _batches(
        self, texts: list[str], template: Template | None = None, batch_size: int | None = None
    ) -> Iterator[Batch]:
        """Tokenise a few batches' worth of texts at a time, longest first, so that memory stays flat."""
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        step = max(1024, self.token_budget // 8)
        for start in range(0, len(order), step):
            chunk = order[start : start + step]
            ids, cut = self._tokenize([texts[row] for row in chunk], template)
            lengths = [len(row) for row in ids]
            for rows in batches_by_length(lengths, self._budget(sum(lengths)), batch_size):
                padded = pad([ids[row] for row in rows], self.tokenizer.pad_token_id)
                batch = Batch([chunk[row] for row in rows], *padded, sum(cut[row] for row in rows))
                yield batch.pinned() if self.device.type == "cuda" else batch

    def _budget(self, tokens: int) -> int:
        """Tokens a batch: on a CPU several batches of few texts too, for less padding and work for every core."""
        return self.token_budget if self.device.type != "cpu" else min(self.token_budget, max(256, tokens // 8))

    def _tokenize(self, texts: list[str], template: Template | None = None) -> tuple[list[list[int]], list[bool]]:
        """Return each text's token ids, and whether it was cut."""
        if template is None:
            rows, cut = self._tokens(texts, self.max_length, special=True)
            # A tokenizer without special tokens gives an empty text no token at all, and there is no vector of nothing.
            return [ids or [self.tokenizer.pad_token_id] for ids in rows], cut
        limit = self._longest_text(template)
        rows, cut = self._tokens([text and template.lead + text for text in texts], limit, special=False)
        if any(cut) and not template.cuts:
            raise InputError(
                f"The text {texts[cut.index(True)]!r:.60} is too long to be read {template.copies} times: of each text {limit} "
                f"tokens fit into the {self.max_length} that {self.name!r} reads. Split it, or use a view that reads it once, "
                "such as Prompt()."
            )
        return [template.wrap(ids) for ids in rows], cut

    def _tokens(self, texts: list[str], limit: int, *, special: bool) -> tuple[list[list[int]], list[bool]]:
        """Return each text's token ids, at most so many, and whether it had more."""
        if not self.tokenizer.is_fast:
            cut_at = {"truncation": True, "max_length": limit}
            return self.tokenizer(texts, add_special_tokens=special, **cut_at)["input_ids"], [False] * len(texts)
        tokenizer = self.tokenizer.backend_tokenizer  # 1.5 to 3 times as fast without all that transformers makes of it
        tokenizer.no_padding()
        tokenizer.enable_truncation(limit, direction=self.tokenizer.truncation_side)
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=special)
        return [encoding.ids for encoding in encodings], [bool(encoding.overflowing) for encoding in encodings]

    @torch.inference_mode()
    def _encode_batch(
        self, reader: LayerReader, readings: list[OneReading], batch: Batch
    ) -> tuple[Tensor, torch.cuda.Event | None]:
        """Return the vectors (readings, n, d) on the CPU, and on cuda what tells when they have arrived there."""
        ids, mask = (part.to(self.device, non_blocking=True) for part in (batch.ids, batch.mask))
        vectors = self._read(reader(ids, mask), ids, mask, readings)
        template = readings[0].template
        biased = [number for number, one in enumerate(readings) if one.template and one.template.subtract_bias]
        if template and biased:
            blank = blanked(template, ids, mask)
            states = reader(blank.ids, blank.hidden)
            bias = self._read(states, blank.ids, blank.mask, [readings[number] for number in biased])
            vectors[biased] -= bias[:, blank.row] * blank.counts
        if self.device.type != "cuda":
            return vectors.cpu(), None
        return vectors.to("cpu", non_blocking=True), torch.cuda.current_stream(self.device).record_event()

    def _read(self, states: States, ids: Tensor, mask: Tensor, readings: list[OneReading]) -> Tensor:
        """Return vectors (readings, n, d)."""
        return torch.stack([one.pool(states, mask, lambda inside: self._word_mask(ids, inside)) for one in readings])

    @cached_property
    def _words(self) -> Tensor:
        return torch.from_numpy(word_tokens(self.tokenizer)).to(self.device)

    def _word_mask(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Which tokens (n, tokens) are of words; all of a text that has none."""
        words = mask * self._words[ids]
        return torch.where(words.any(1, keepdim=True), words, mask)


def digest_weights(digest: hashlib._Hash, model: torch.nn.Module) -> None:
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
