"""Run what `bertflow export onnx` wrote, without torch: onnxruntime, tokenizers and numpy are all it needs.

The folder holds ``model.onnx`` (weights inside, or beside it where they exceed 2 GB), ``config.json`` and, for a whole
model, ``tokenizer.json``. To install only what it takes::

    pip install numpy onnxruntime tokenizers
    pip install --no-deps bertflow
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.errors import InputError, ModelFolderError, TruncationWarning, require
from bertflow.runtime.sessions import open_session
from bertflow.storage.checksums import SEAL, check_seal, verify
from bertflow.texts import batches_by_length, check_sentences
from bertflow.version import __version__

FORMAT = "bertflow-onnx"
FORMAT_VERSION = 2  # 2: config.json has a seal
CONFIG, GRAPH, TOKENIZER = "config.json", "model.onnx", "tokenizer.json"
TEXT, CALIBRATOR = "text", "calibrator"  # kinds of artefact
TOKEN_BUDGET = 2048  # tokens a batch, padding included: as Encoder on a CPU


class OnnxModel:
    """A calibrated sentence encoder in ONNX: text in, vectors out, no torch.

    Args:
        session: An ``onnxruntime.InferenceSession`` from (input_ids, attention_mask) to vectors.
        tokenizer: A ``tokenizers.Tokenizer``.
        config: The folder's config.json.

    Attributes:
        dim: Dimensions of the vectors.
        max_length: Tokens read of each text; longer ones are cut with one warning.

    Example:
        >>> from bertflow import OnnxModel
        >>> model = OnnxModel.from_pretrained("my-onnx-model")  # doctest: +SKIP
        >>> model.similarity("A man is eating.", "Someone has lunch.")  # doctest: +SKIP
    """

    def __init__(self, session: Any, tokenizer: Any, config: dict[str, Any]) -> None:
        self.dim, self.max_length = int(config["dim"]), int(config["max_length"])
        self.config = config
        self.token_budget = TOKEN_BUDGET
        self._session, self._tokenizer = session, tokenizer
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_length)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, providers: Sequence[str] = ("CPUExecutionProvider",), threads: int | None = None
    ) -> OnnxModel:
        """Load an exported model.

        Args:
            folder: What `bertflow export onnx` wrote.
            providers: onnxruntime's execution providers, in order of preference.
            threads: Default: one for each core.
        """
        config = load_config(folder, TEXT)
        path = Path(folder) / TOKENIZER
        library = require("tokenizers", "onnx")
        try:
            tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises Exception itself
            raise ModelFolderError(
                f"{path} cannot be read by tokenizers {library.__version__}: {error}. Export again."
            ) from None
        return cls(open_session(Path(folder) / GRAPH, providers=providers, threads=threads), tokenizer, config)

    def encode(self, sentences: str | Sequence[str], *, normalize_embeddings: bool = False) -> Matrix:
        """Map one text to its calibrated vector (d,), or n texts to (n, d).

        Args:
            sentences: One text or many.
            normalize_embeddings: Scale each vector to length one, so that a dot product is the cosine.
        """
        texts = [sentences] if isinstance(sentences, str) else check_sentences(sentences)
        distinct = list(dict.fromkeys(texts))
        ids = self._tokenize(distinct)
        vectors = np.empty((len(distinct), self.dim), dtype=np.float32)
        for rows in batches_by_length([len(row) for row in ids], self.token_budget):
            vectors[rows] = self._encode_batch([ids[row] for row in rows])
        place = {text: row for row, text in enumerate(distinct)}
        vectors = vectors[[place[text] for text in texts]]
        vectors = unit_rows(vectors) if normalize_embeddings else vectors
        return vectors[0] if isinstance(sentences, str) else vectors

    def similarity(self, a: Any, b: Any) -> Any:
        """Return the cosine of two texts, or the matrix (n, m) of cosines between two lists of texts or of vectors.

        Args:
            a: A text, texts, or calibrated vectors (n, d).
            b: Likewise.
        """
        matrix = unit_rows(self._vectors(a)) @ unit_rows(self._vectors(b)).T
        return float(matrix[0, 0]) if isinstance(a, str) and isinstance(b, str) else matrix

    def _vectors(self, texts_or_vectors: Any) -> Matrix:
        if isinstance(texts_or_vectors, str):
            return self.encode([texts_or_vectors])
        many = texts_or_vectors if hasattr(texts_or_vectors, "__len__") else list(texts_or_vectors)
        return self.encode(many) if isinstance(next(iter(many), ""), str) else as_rows(many, self.dim)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch(texts)
        cut = sum(bool(encoding.overflowing) for encoding in encodings)
        if cut:
            warnings.warn(
                f"{cut} of {len(texts)} texts have more than {self.max_length} tokens; only the first {self.max_length} "
                "of each were read. Split long texts.",
                TruncationWarning,
                stacklevel=3,
            )
        return [
            encoding.ids or [self.config["pad_token_id"]] for encoding in encodings
        ]  # there is no vector of nothing

    def _encode_batch(self, rows: list[list[int]]) -> Matrix:
        ids = np.full((len(rows), max(map(len, rows))), self.config["pad_token_id"], dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    def __repr__(self) -> str:
        return f"OnnxModel({self.config['name']!r} + {self.config['calibrator']}, {self.config['precision']}, dim={self.dim})"


class OnnxCalibrator:
    """A calibrator alone in ONNX: vectors in, calibrated vectors out.

    Args:
        session: An ``onnxruntime.InferenceSession`` from vectors (n, d) to vectors (n, k), float32.
        config: The folder's config.json.
    """

    def __init__(self, session: Any, config: dict[str, Any]) -> None:
        self.n_features_in_, self.n_features_out_ = int(config["dim_in"]), int(config["dim"])
        self.config = config
        self._session = session

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, providers: Sequence[str] = ("CPUExecutionProvider",), threads: int | None = None
    ) -> OnnxCalibrator:
        """Load what `bertflow export onnx --calibrator-only` wrote; arguments as in ``OnnxModel``."""
        config = load_config(folder, CALIBRATOR)
        return cls(open_session(Path(folder) / GRAPH, providers=providers, threads=threads), config)

    def transform(self, X: object) -> Matrix:
        """Map sentence vectors (n, d) to calibrated vectors (n, k), float32."""
        return self._session.run(None, {"sentence_embedding": as_rows(X, self.n_features_in_)})[0]

    def __repr__(self) -> str:
        return f"OnnxCalibrator({self.config['calibrator']}, {self.n_features_in_} → {self.n_features_out_})"


def load_config(folder: str | Path, kind: str) -> dict[str, Any]:
    """Read config.json and check the files it names, refusing with a sentence what is damaged, foreign or newer."""
    folder = Path(folder)
    config = read_config(folder)
    if config.get("format") != FORMAT:
        hint = " It is a model for PyTorch: export it first." if config.get("format") == "bertflow" else ""
        raise ModelFolderError(f"{folder} was not written by `bertflow export onnx`.{hint}")
    version = config.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFolderError(
            f"{folder} was written by bertflow {config.get('bertflow_version')}; this is {__version__}, which is older. "
            "Run  pip install --upgrade bertflow"
        )
    if config.get("kind") != kind:
        name = "OnnxCalibrator" if kind == TEXT else "OnnxModel"
        what = "a calibrator alone" if kind == TEXT else "a whole model"
        raise ModelFolderError(f"{folder} holds {what}: load it with {name}.from_pretrained.")
    _check_files(folder, config, (GRAPH, TOKENIZER) if kind == TEXT else (GRAPH,))
    return config


def _check_files(folder: Path, config: dict[str, Any], needed: Sequence[str]) -> None:
    """Refuse a folder whose files are not those that were exported, or whose configuration cannot be true."""
    sums, again = config.get("sha256"), "copy the whole folder again, or export again"
    if config["format_version"] > 1 or SEAL in config:
        check_seal(config, folder / CONFIG, again)
    numbers = ("dim", "max_length", "pad_token_id") if TOKENIZER in needed else ("dim", "dim_in")
    if not isinstance(sums, dict) or not set(needed) <= set(sums):
        raise ModelFolderError(f"{folder / CONFIG} does not vouch for {' and '.join(needed)}: {again}.")
    for name in numbers:
        if not isinstance(config.get(name), int) or not 0 <= config[name] < 2**31:
            raise ModelFolderError(
                f"{folder / CONFIG} has {name} = {config.get(name)!r:.40}, which is no size: {again}."
            )
    for name, known in sums.items():
        if Path(name).name != name:
            raise ModelFolderError(f"{folder / CONFIG} names the file {name!r:.80}, outside its folder: {again}.")
        verify(folder / name, known, again)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the folder's config.json, whoever wrote it."""
    path = folder / CONFIG
    if not path.is_file():
        what = f"holds no {CONFIG}" if folder.is_dir() else "does not exist"
        raise ModelFolderError(f"{folder} {what}: it is no exported model. `bertflow export onnx` makes one.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged ({error}): copy the folder again, or export anew.") from None
    return config if isinstance(config, dict) else {}


def as_rows(x: object, dim: int) -> Matrix:
    """Return vectors as a finite (n, dim) array."""
    rows = as_matrix(x, "Vectors")
    if rows.shape[1] != dim:
        raise InputError(f"Vectors have shape {rows.shape}; this model takes (n, {dim}).")
    return rows.astype(np.float32, copy=False)
