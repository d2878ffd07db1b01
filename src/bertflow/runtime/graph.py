"""A transformer's ONNX graph, from text to pooled vectors, with numpy, tokenizers and onnxruntime alone.

The graph gives hidden states; pooling is numpy's, so one graph serves every pooling and every model fitted on the encoder.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertflow.arrays import Matrix
from bertflow.errors import ModelFolderError, TruncationWarning
from bertflow.runtime.sessions import count_threads, open_session
from bertflow.texts import batches_by_length, check_sentences

GRAPH, SETTINGS, TOKENIZER = "model.onnx", "graph.json", "tokenizer.json"
WEIGHTS = "model.safetensors"  # where the mini encoder's graph has its weights
TOKEN_BUDGET = 2048  # tokens a batch, padding included: as Encoder on a CPU
UNKNOWN = -1


class NumpyPooling(NamedTuple):
    """How hidden states become one vector a text, as ``bertflow.Pooling`` says it for torch.

    Args:
        layers: The hidden states it reads (0 = embeddings, -1 = last); several are averaged first.
        reduce: Maps states (n, tokens, d) and the mask of the tokens that count (n, tokens) to vectors (n, d).
    """

    layers: tuple[int, ...]
    reduce: Callable[[Matrix, Matrix], Matrix]


def _first(states: Matrix, mask: Matrix) -> Matrix:
    return states[:, 0]


def _last(states: Matrix, mask: Matrix) -> Matrix:
    return states[np.arange(len(states)), (mask * np.arange(1, mask.shape[1] + 1)).argmax(1)]


def _mean(states: Matrix, mask: Matrix) -> Matrix:
    return _weighted(states, mask)


def _maximum(states: Matrix, mask: Matrix) -> Matrix:
    return np.where(mask[:, :, None] > 0, states, -np.inf).max(1)


def _later_more(states: Matrix, mask: Matrix) -> Matrix:
    return _weighted(states, mask.cumsum(1) * mask)


def _weighted(states: Matrix, weights: Matrix) -> Matrix:
    shares = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return np.matmul(shares[:, None], states)[:, 0]


#: Poolings by name. Those that users register have no numpy form; their models run in torch.
POOLINGS = {
    "cls": NumpyPooling((-1,), _first),
    "mean": NumpyPooling((-1,), _mean),
    "max": NumpyPooling((-1,), _maximum),
    "last-token": NumpyPooling((-1,), _last),
    "weighted-mean": NumpyPooling((-1,), _later_more),
    "last2avg": NumpyPooling((-2, -1), _mean),
    "first-last-avg": NumpyPooling((1, -1), _mean),
    "embedding-last-avg": NumpyPooling((0, -1), _mean),
}


class GraphReading(NamedTuple):
    """What a pass is to give: ``bertflow.encoders.base.Reading`` without what numpy does not know."""

    pooling: str
    words_only: bool = False


class GraphEncoder:
    """A transformer in onnxruntime that gives the vectors of ``bertflow.Encoder``.

    Args:
        folder: Holds ``model.onnx``, ``graph.json`` and ``tokenizer.json``.

    Attributes:
        settings: What ``describe_reader`` wrote.
        numbers: The hidden states that the graph gives.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.folder = folder
        try:
            self.settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            self.tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self.numbers = {int(number) for number in self.settings["states"]}
            self.dim, self.count = int(self.settings["dim"]), int(self.settings["layers"])
            self.max_length, self.padding = int(self.settings["max_length"]), int(self.settings["pad_token_id"])
            self.tokenizer.enable_truncation(self.max_length, direction=self.settings["truncation_side"])
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFolderError(f"{folder} holds no graph of an encoder ({error}): save the model again.") from None
        self.tokenizer.no_padding()
        self._words = np.full(self.tokenizer.get_vocab_size(), UNKNOWN, dtype=np.int8)
        self._words[[token for token in self.settings["special"] if token < len(self._words)]] = 0
        self._sessions: dict[int, Any] = {}

    def gives(self, pooling: str) -> bool:
        """Whether the graph has the hidden states that a pooling reads."""
        return pooling in POOLINGS and {self._number(layer) for layer in POOLINGS[pooling].layers} <= self.numbers

    def encode_views(
        self,
        texts: Sequence[str],
        readings: Sequence[GraphReading],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> list[Matrix]:
        """Read n texts in several ways in one pass; return (n, d) of each."""
        texts = check_sentences(texts)
        place = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        ids = self._tokenize(list(place))
        lengths = [len(row) for row in ids]
        budget = min(TOKEN_BUDGET, max(256, sum(lengths) // 8))
        batches = list(batches_by_length(lengths, budget, batch_size))
        found = np.empty((len(readings), len(place), self.dim), dtype=np.float32)

        def run(session: Any, rows: list[int]) -> list[int]:
            found[:, rows] = self._encode_batch(session, [ids[row] for row in rows], readings)
            return rows

        with _progress(len(place), self.folder.name, show_progress_bar) as advance:
            for rows in self._in_turn(run, batches):
                advance(len(rows))
        order = [place[text] for text in texts]
        return [vectors if len(place) == len(texts) else vectors[order] for vectors in found]

    def _in_turn(self, run: Callable[[Any, list[int]], list[int]], batches: list[list[int]]) -> Iterator[list[int]]:
        """Run batches: a few one by one on all our threads, many at the same time on one thread each.

        Sharing out whole batches needs no waiting for each other, as sharing out every multiplication does; a thread pool
        is not worth its start for less.
        """
        threads = count_threads()
        if threads == 1 or len(batches) < 2 * threads:
            yield from (run(self._session(threads), rows) for rows in batches)
            return
        session = self._session(1)
        with ThreadPoolExecutor(threads, "bertflow") as pool:
            yield from pool.map(lambda rows: run(session, rows), batches)

    def _session(self, threads: int) -> Any:
        if threads not in self._sessions:
            own = self.settings.get("weights")
            self._sessions[threads] = open_session(self.folder / GRAPH, threads=threads, beside=own or "")
        return self._sessions[threads]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encodings = self.tokenizer.encode_batch_fast(texts)
        cut = sum(bool(encoding.overflowing) for encoding in encodings)
        if cut:
            warnings.warn(
                f"{cut} of {len(texts)} texts have more than {self.max_length} tokens; only the first {self.max_length} of "
                "each were read. Split long texts, or raise max_length if the model allows it.",
                TruncationWarning,
                stacklevel=5,
            )
        return [encoding.ids or [self.padding] for encoding in encodings]  # there is no vector of nothing

    def _encode_batch(self, session: Any, rows: list[list[int]], readings: Sequence[GraphReading]) -> Matrix:
        """Return vectors (readings, n, d) of a batch."""
        ids = np.full((len(rows), max(map(len, rows))), self.padding, dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        numbers = sorted({self._number(layer) for one in readings for layer in POOLINGS[one.pooling].layers})
        given = session.run([f"hidden_{number}" for number in numbers], {"input_ids": ids, "attention_mask": mask})
        states = dict(zip(numbers, given, strict=True))
        return np.stack([self._pool(states, ids, mask, one) for one in readings])

    def _pool(self, states: dict[int, Matrix], ids: Any, mask: Any, reading: GraphReading) -> Matrix:
        layers, reduce = POOLINGS[reading.pooling]
        chosen = [states[self._number(layer)] for layer in layers]
        mean = chosen[0] if len(chosen) == 1 else sum(chosen[1:], chosen[0]) / np.float32(len(chosen))
        return reduce(mean, self._word_mask(ids, mask) if reading.words_only else mask)

    def _number(self, layer: int) -> int:
        return layer % (self.count + 1)

    def _word_mask(self, ids: Any, mask: Any) -> Any:
        """Which tokens (n, tokens) are of words; all of a text that has none."""
        new = np.unique(ids)
        for token in new[self._words[new] == UNKNOWN].tolist():
            text = self.tokenizer.decode([token], skip_special_tokens=False)
            self._words[token] = any(c.isalnum() or c == "\ufffd" for c in text)
        words = mask * self._words[ids]
        return np.where(words.any(1, keepdims=True), words, mask)

    @cached_property
    def fingerprints(self) -> frozenset[str]:
        """Of the encoders, one for each pooling, whose vectors the graph gives; none are noted where it was saved with one."""
        return frozenset(self.settings.get("fingerprints", ()))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sessions": {}}  # onnxruntime's cannot be copied


class _progress:
    """A progress bar, or nothing: its package is imported only where it is shown."""

    def __init__(self, total: int, name: str, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=f"encoding with {name}")

    def __enter__(self) -> Callable[[int], Any]:
        return self._bar.update if self._bar is not None else (lambda _: None)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def describe_reader(encoder: Any, states: Iterable[int]) -> dict[str, Any]:
    """Return what ``GraphEncoder`` needs to know of a ``bertflow.Encoder``, as JSON.

    Args:
        encoder: With a fast tokenizer.
        states: The hidden states that the graph gives.
    """
    return {
        "dim": encoder.dim,
        "layers": int(encoder.model.config.num_hidden_layers),
        "states": sorted(states),
        "max_length": encoder.max_length,
        "pad_token_id": encoder.tokenizer.pad_token_id,
        "truncation_side": encoder.tokenizer.truncation_side,
        "special": sorted(encoder.tokenizer.all_special_ids),
    }
