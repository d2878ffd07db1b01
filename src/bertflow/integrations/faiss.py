"""Search your own texts with FAISS: encode, calibrate, index; then ask.

    from bertflow.integrations.faiss import build_index

    index = build_index("mini", texts)
    for hit in index.search("who repairs bicycles?").hits[0]:
        ...

For an index of your own, ``pretransform`` gives an affine calibrator as FAISS's transforms.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.calibrators import Calibrator, Identity, Whitening
from bertflow.calibrators.names import make_calibrator
from bertflow.encoders.transformer import as_encoder, check_sentences
from bertflow.errors import InputError
from bertflow.integrations import index_folder
from bertflow.integrations.faiss_transforms import (
    bare_index,
    calibrated_index,
    faiss_threads,
    is_affine,
    load_faiss,
    pretransform,
    reason,
)
from bertflow.integrations.index_folder import Entry
from bertflow.model import BertFlow

__all__ = ["Hit", "SearchIndex", "SearchResult", "build_index", "calibrated_index", "pretransform"]

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 65_536  # added in one go: bounds the copies that FAISS makes
RECALL_QUERIES = 500
NEIGHBOURS = 10


@dataclass(frozen=True)
class Hit:
    """A text that was found.

    Args:
        rank: From 1.
        cosine: Of query and text, calibrated; approximate where the index compresses its vectors.
        text: The text.
        row: Its (first) place in the texts that were indexed, from 0.
        copies: How often it was there.
    """

    rank: int
    cosine: float
    text: str
    row: int
    copies: int


@dataclass(frozen=True)
class SearchResult:
    """What a search found, and how long it took.

    Args:
        hits: For each query its hits, best first.
        encode_seconds: From text to vectors.
        search_seconds: From vectors to hits.
    """

    hits: list[list[Hit]]
    encode_seconds: float
    search_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


class SearchIndex:
    """Texts that can be searched by meaning. Made by ``build_index`` or ``SearchIndex.load``.

    Args:
        model: Encoder and calibrator.
        index: A FAISS index as ``calibrated_index`` makes it, with one vector for each entry.
        entries: The texts.
        report: What is known of the build: counts, dimensions, recall.
    """

    def __init__(self, model: BertFlow, index: Any, entries: Sequence[Entry], report: dict[str, Any]) -> None:
        self.model = model
        self.index = index
        self.entries = entries
        self.report = report

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"SearchIndex({len(self)} texts, {self.report['factory']!r}, {self.model!r})"

    def search(self, queries: str | Sequence[str], k: int = 10) -> SearchResult:
        """Find the k texts nearest to each query, or all where there are fewer.

        Args:
            queries: One text or many.
            k: Hits for each.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k is {k!r}; it must be 1 or more.")
        texts = check_sentences([queries] if isinstance(queries, str) else queries)
        blank = next((i for i, text in enumerate(texts) if not text.strip()), None)
        if blank is not None:
            raise InputError(f"Query {blank + 1} is empty: write what to look for.")
        started = time.perf_counter()
        vectors = _inputs(self.model.calibrator, self.model.encoder.encode(texts))
        encoded = time.perf_counter()
        with faiss_threads():
            cosines, numbers = self.index.search(vectors, min(k, len(self)))
        finished = time.perf_counter()
        hits = [self._hits(*found) for found in zip(cosines, numbers, strict=True)]
        return SearchResult(hits, encoded - started, finished - encoded)

    def _hits(self, cosines: Matrix, numbers: Any) -> list[Hit]:
        found = [(cosine, number) for cosine, number in zip(cosines, numbers, strict=True) if number >= 0]
        return [
            Hit(rank, float(np.clip(cosine, -1, 1)), *self.entries[int(number)])
            for rank, (cosine, number) in enumerate(found, 1)
        ]

    def save(self, folder: str | Path, *, bundle_encoder: bool = False) -> Path:
        """Write index, texts and model to a folder, whole or not at all; an earlier index there is replaced.

        Args:
            folder: Where.
            bundle_encoder: Put the encoder's weights into it too, so that it can be moved to another machine.
        """
        return index_folder.save(folder, self.index, self.entries, self.model, self.report, bundle_encoder)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> SearchIndex:
        """Load a saved index with its model; the texts stay on disk and are read as they are found."""
        index, entries, report = index_folder.load(folder)
        return cls(BertFlow.from_pretrained(Path(folder) / index_folder.MODEL, device=device), index, entries, report)


def build_index(
    model: Any,
    texts: Sequence[str],
    *,
    calibrator: str = "whitening",
    dimension: int | None = None,
    factory: str = "Flat",
    parameters: str | None = None,
    random_state: int = 0,
    show_progress_bar: bool = False,
) -> SearchIndex:
    """Encode and calibrate texts and put them into a FAISS index for cosine search.

    Blank texts are left out, repeated ones are kept once. The vectors must fit into memory.

    Args:
        model: A ``BertFlow``; or an encoder (``"mini"``, a Hugging Face id…), on which a calibrator is fitted to the texts.
        texts: What will be searched.
        calibrator: For an encoder: ``"whitening"``, ``"flow"``, ``"none"``…; see ``bertflow.calibrators.names``.
        dimension: Keep only so many dimensions, those of most variance; only for whitening, whose dimensions are ordered.
        factory: FAISS's name of the index: ``"Flat"`` is exact, ``"HNSW32"`` or ``"IVF256,Flat"`` are faster and approximate.
        parameters: For searching, as FAISS writes them: ``"nprobe=16"``, ``"efSearch=64"``.
        random_state: For the flow, and for the sample that recall is measured on.
        show_progress_bar: Show progress.

    Returns:
        The index. Where it is not the exact search in all dimensions, ``report["recall"]`` is the share of the 10 nearest
        neighbours by that search which this index finds, over a sample of the texts as queries.
    """
    entries, report = _distinct(texts)
    encoder = model.encoder if isinstance(model, BertFlow) else as_encoder(model)
    full = model.calibrator if isinstance(model, BertFlow) else make_calibrator(calibrator, random_state)
    full_dimension = getattr(full, "n_components", None) or encoder.dim
    if dimension is not None:
        _check_dimension(full, dimension, full_dimension)
    bare_index(dimension or full_dimension, factory, parameters)  # what is wrong with it is better said before the work
    vectors = encoder.encode([entry.text for entry in entries], show_progress_bar=show_progress_bar)
    if not isinstance(model, BertFlow):
        model = BertFlow(encoder, _fit(full, vectors), {"sentences": len(entries)})
    if dimension is not None:
        model = BertFlow(encoder, _reduced(full, dimension), model.training)
    inputs = _inputs(model.calibrator, vectors)
    index = calibrated_index(model.calibrator, factory, parameters)
    # FAISS links graphs in the order in which threads arrive: with one, the same texts give the same index
    with faiss_threads(None if factory == "Flat" else 1):
        _fill(index, inputs, factory)
    report |= {"dimension": model.dim, "full_dimension": full_dimension, "factory": factory, "recall": None}
    if (dimension is not None or factory != "Flat") and len(entries) > 1:
        report |= _recall(index, inputs, unit_rows(full.transform(vectors)), random_state)
    return SearchIndex(model, index, entries, report)


def _distinct(texts: Sequence[str]) -> tuple[list[Entry], dict[str, Any]]:
    """Return each text that is not blank once, with its first row and number of copies."""
    first: dict[str, int] = {}
    copies: dict[str, int] = {}
    checked = check_sentences(texts)
    for row, text in enumerate(checked):
        if text.strip():
            first.setdefault(text, row)
            copies[text] = copies.get(text, 0) + 1
    if not first:
        raise InputError(f"All {len(checked)} texts are blank; there is nothing to index.")
    filled = sum(copies.values())
    report = {"texts": len(first), "repeated": filled - len(first), "blank": len(checked) - filled}
    return [Entry(text, row, copies[text]) for text, row in first.items()], report


def _fit(calibrator: Calibrator, vectors: Matrix) -> Calibrator:
    rows, dim = vectors.shape
    if rows < 2:
        raise InputError("A calibrator is fitted on two different texts or more; give a fitted model for one text.")
    if rows < 2 * dim and not isinstance(calibrator, Identity):
        logger.warning(
            "Only %d different texts to fit %s of %d dimensions on: better fit a model on more text, or take 'none'.",
            rows,
            type(calibrator).__name__,
            dim,
        )
    return calibrator.fit(vectors)


def _check_dimension(calibrator: Calibrator, dimension: int, full: int) -> None:
    if not isinstance(calibrator, Whitening) or calibrator.method != "pca":
        raise InputError(
            f"Dimensions can be left out of a PCA whitening, which orders them by variance; {type(calibrator).__name__} "
            "does not. Build with calibrator 'whitening', or let FAISS compress: factory 'PCA64,L2norm,Flat'."
        )
    if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer) or not 1 <= dimension <= full:
        raise InputError(f"dimension is {dimension!r}; it must be a number from 1 to {full}.")


def _reduced(calibrator: Calibrator, dimension: int) -> Calibrator:
    """Keep the first dimensions of a whitening: the same as a whitening fitted with so many components."""
    settings, arrays = calibrator.get_state()
    params = settings["params"] | {"n_components": dimension}
    cut = {"kernel": arrays["kernel"][:, :dimension], "inverse_kernel": arrays["inverse_kernel"][:dimension]}
    return Calibrator.from_state(settings | {"params": params, "n_features_out": dimension}, arrays | cut)


def _inputs(calibrator: Calibrator, vectors: Matrix) -> Matrix:
    """What the index takes: raw vectors where it holds the calibrator itself, else calibrated ones."""
    given = vectors if is_affine(calibrator) else calibrator.transform(vectors)
    return np.ascontiguousarray(given, dtype=np.float32)


def _fill(index: Any, inputs: Matrix, factory: str) -> None:
    try:
        if not index.is_trained:
            index.train(inputs)
        for start in range(0, len(inputs), ROWS_AT_ONCE):
            index.add(inputs[start : start + ROWS_AT_ONCE])
    except RuntimeError as error:
        raise InputError(
            f"FAISS cannot fill the index {factory!r} with {len(inputs)} texts: {reason(error)}."
        ) from None


def _recall(index: Any, inputs: Matrix, exact: Matrix, seed: int) -> dict[str, Any]:
    """Compare the index with exact search; the query itself, which is always found, does not count."""
    faiss = load_faiss()
    rows = np.sort(np.random.default_rng(seed).permutation(len(exact))[:RECALL_QUERIES])
    wanted = min(NEIGHBOURS, len(exact) - 1)
    with faiss_threads():
        queries, corpus = (np.ascontiguousarray(x, dtype=np.float32) for x in (exact[rows], exact))
        _, truth = faiss.knn(queries, corpus, wanted + 1, metric=faiss.METRIC_INNER_PRODUCT)
        _, found = index.search(inputs[rows], wanted + 1)
    shared = 0
    for row, right, answer in zip(rows, truth, found, strict=True):
        shared += len(set(right[right != row][:wanted]) & set(answer[answer != row][:wanted]))
    return {"recall": shared / (wanted * len(rows)), "recall_at": wanted, "recall_queries": len(rows)}
