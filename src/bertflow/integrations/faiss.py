"""Search your own texts with FAISS: encode, calibrate, index; then ask.

    from bertflow.integrations.faiss import build_index

    index = build_index("mini", texts)
    for hit in index.search("who repairs bicycles?").hits[0]:
        ...

A model of any recipe can encode for an index. Where it has one part and that is affine, its calibration lives inside the
index; else the vectors are calibrated before, by the model that the index's folder keeps. For an index of your own,
``pretransform`` gives an affine calibrator as FAISS's transforms.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.encoders.base import encode_views
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.integrations import index_folder
from bertflow.integrations.faiss_transforms import (
    bare_index,
    calibrated_index,
    faiss_threads,
    holds_calibration,
    index_of,
    load_faiss,
    pretransform,
    reason,
)
from bertflow.integrations.index_folder import Entry
from bertflow.model import BertFlow
from bertflow.parts import Part, fit_parts, join_parts
from bertflow.recipes import RAW, check_recipe, make_parts
from bertflow.texts import check_sentences

__all__ = ["Hit", "SearchIndex", "SearchResult", "build_index", "calibrated_index", "pretransform"]

logger = logging.getLogger(__name__)

RECIPE = "whitening"  # by default: it lives inside the index, and its dimensions are ordered
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
        model: Of any recipe.
        index: A FAISS index as ``build_index`` makes it, with one vector for each entry.
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
        vectors = _inputs(self.model.parts, encode_views([part.view for part in self.model.parts], texts))
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
    recipe: str | None = None,
    dimension: int | None = None,
    factory: str = "Flat",
    parameters: str | None = None,
    random_state: int = 0,
    show_progress_bar: bool = False,
    calibrator: str | None = None,
) -> SearchIndex:
    """Encode and calibrate texts and put them into a FAISS index for cosine search.

    Blank texts are left out, repeated ones are kept once. The vectors must fit into memory.

    Args:
        model: A ``BertFlow``; or an encoder (``"mini"``, a Hugging Face id…), on which a recipe is fitted to the texts.
        texts: What will be searched.
        recipe: For an encoder: a name of ``bertflow.recipes()``; default: ``"whitening"``.
        dimension: Keep only so many dimensions, those of most variance; only for whitening, whose dimensions are ordered.
        factory: FAISS's name of the index: ``"Flat"`` is exact, ``"HNSW32"`` or ``"IVF256,Flat"`` are faster and approximate.
        parameters: For searching, as FAISS writes them: ``"nprobe=16"``, ``"efSearch=64"``.
        random_state: For what is random in a recipe, and for the sample that recall is measured on.
        show_progress_bar: Show progress.
        calibrator: Deprecated: ``recipe`` says it.

    Returns:
        The index. Where it is not the exact search in all dimensions, ``report["recall"]`` is the share of the 10 nearest
        neighbours by that search which this index finds, over a sample of the texts as queries.
    """
    if calibrator is not None:
        warnings.warn(f"calibrator= is deprecated; write recipe={calibrator!r}.", FutureWarning, stacklevel=2)
    name = check_recipe(recipe or calibrator or RECIPE)
    entries, report = _distinct(texts)
    fitted = model if isinstance(model, BertFlow) else None
    encoder = fitted.encoder if fitted else as_encoder(model)
    parts = fitted.parts if fitted else make_parts(name, random_state=random_state)
    full_dimension = sum(_planned_dimension(part, encoder) for part in parts)
    if dimension is not None:
        _check_dimension(parts, dimension, full_dimension)
    bare_index(dimension or full_dimension, factory, parameters)  # what is wrong with it is better said before the work
    distinct = [entry.text for entry in entries]
    if fitted:
        views = encode_views([part.view for part in parts], distinct, show_progress_bar=show_progress_bar)
    else:
        _check_rows(name, len(entries), full_dimension)
        views = fit_parts(parts, encoder, distinct, show_progress_bar=show_progress_bar)
        fitted = BertFlow(encoder, None, {"sentences": len(entries)}, parts=parts, recipe=name)
    if dimension is not None:
        reduced = [replace(parts[0], calibrator=_whitening(parts).reduced(dimension))]
        fitted = BertFlow(encoder, None, fitted.training, parts=reduced)
    inputs = _inputs(fitted.parts, views)
    index = index_of(fitted.parts, factory, parameters)
    # FAISS links graphs in the order in which threads arrive: with one, the same texts give the same index
    with faiss_threads(None if factory == "Flat" else 1):
        _fill(index, inputs, factory)
    report |= {"dimension": fitted.dim, "full_dimension": full_dimension, "factory": factory, "recall": None}
    if (dimension is not None or factory != "Flat") and len(entries) > 1:
        report |= _recall(index, inputs, unit_rows(join_parts(parts, views)), random_state)
    return SearchIndex(fitted, index, entries, report)


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


def _planned_dimension(part: Part, encoder: Any) -> int:
    """Dimensions that a part has, or will have once it is fitted."""
    wanted = getattr(part.calibrator, "n_components", None)
    return int(wanted or getattr(part.view, "dim", None) or getattr(part.view, "features", encoder.dim))


def _check_rows(recipe: str, rows: int, dim: int) -> None:
    if rows < 2:
        raise InputError("A recipe is fitted on two different texts or more; give a fitted model for one text.")
    if rows < 2 * dim and recipe.partition("@")[0] != RAW:
        logger.warning(
            "Only %d different texts to fit %s of %d dimensions on: better fit a model on more text, or take %r.",
            rows,
            recipe,
            dim,
            RAW,
        )


def _check_dimension(parts: Sequence[Part], dimension: int, full: int) -> None:
    _whitening(parts)
    if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer) or not 1 <= dimension <= full:
        raise InputError(f"dimension is {dimension!r}; it must be a number from 1 to {full}.")


def _whitening(parts: Sequence[Part]) -> Any:
    """Return the calibrator of a model whose dimensions are ordered, or refuse."""
    calibrators = [part.calibrator for part in parts]
    if len(parts) > 1 or getattr(calibrators[0], "method", None) != "pca":
        names = " beside ".join(type(calibrator).__name__ for calibrator in calibrators)
        raise InputError(
            f"Dimensions can be left out of a PCA whitening, which orders them by variance; {names} does not. Build with "
            "the recipe 'whitening', or let FAISS compress: factory 'PCA64,L2norm,Flat'."
        )
    return calibrators[0]


def _inputs(parts: Sequence[Part], views: Sequence[Matrix]) -> Matrix:
    """What the index takes: a view's own vectors where it holds the calibration itself, else calibrated ones."""
    given = views[0] if holds_calibration(parts) else join_parts(parts, views)
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
