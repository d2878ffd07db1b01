"""Encoding and applying on many machines, by Ray Data: text or parquet in, parquet out, a worker for each GPU or core.

Ray moves the rows, spreads the workers, holds back what would not fit in memory and runs again what a dead worker leaves
undone; this module says what a worker is. Every machine needs bertflow and must see the input and the output.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertflow.errors import BertflowError, InputError, require
from bertflow.integrations.ray_inputs import (
    EMBEDDING,
    READERS,
    columns_of,
    filesystem_of,
    input_files,
    refuse_full,
    text_column,
)
from bertflow.model import BertFlow
from bertflow.storage import model_folder
from bertflow.storage.atomic import atomic_folder

# What goes to a worker as one task, and is done again if the worker dies: some ten thousands of sentences. Ray's own 128 MiB
# would be a million, and a corpus in one file would keep one worker busy and the others idle.
_BYTES_A_TASK = 4 * 2**20
# Readers and writers ask for no CPU: where the workers hold them all, Ray would otherwise wait for ever.
_LIGHT = {"num_cpus": 0}


@dataclass(frozen=True)
class Written:
    """What ``embed`` wrote.

    Args:
        output: The folder.
        files: How many parquet files.
        rows: How many rows in all.
        dim: Dimensions of a vector.
    """

    output: str
    files: int
    rows: int
    dim: int


def embed(
    input: str | Path | Sequence[str | Path],  # noqa: A002 (the word that everyone looks for)
    output: str | Path,
    model: str | Path | BertFlow,
    *,
    concurrency: int | None = None,
    num_gpus: float | None = None,
    batch_size: int = 4096,
    column: str | None = None,
    normalize_embeddings: bool = False,
    rows_per_file: int = 100_000,
    address: str | None = None,
    show_progress_bar: bool = False,
) -> Written:
    """Write the calibrated vectors of all rows of ``input`` to a folder of parquet files.

    Of text files every line is a row, with the columns ``source``, ``line`` (from 1), ``text`` and ``embedding``; a row of a
    parquet file keeps its columns and gets ``embedding``. Rows come in no particular order. A worker that dies is replaced
    and what it was doing is done again; no row is lost or doubled. In a local or shared folder the output is there whole or
    not at all.

    Args:
        input: ``.txt`` or ``.parquet`` files, or folders of them, seen by all machines: paths or addresses such as ``s3://…``
        output: A new or empty folder, likewise.
        model: A folder, a hub id or a model, of any recipe; its files are sent to the workers. An encoder that is a folder of
            its own is not, unless it was saved with ``bundle_encoder=True``: the workers must see it.
        concurrency: Workers; default: one for each GPU, or each core where there is none.
        num_gpus: GPUs a worker; default: 1 where the cluster has any. 0.5 puts two workers on each.
        batch_size: Rows that a worker encodes at once.
        column: Column of a parquet file with the text; default: ``sentence``, then ``text``.
        normalize_embeddings: Scale each vector to length one.
        rows_per_file: Rows in an output file, at least, but for the last.
        address: Of the cluster, such as ``"auto"``; default: ``RAY_ADDRESS``, else this machine alone. Where Ray is running
            already, it is used as it is.
        show_progress_bar: Show Ray's progress.
    """
    arrow = require("pyarrow", "ray")
    ray = require("ray", "ray")
    require("ray.data", "ray")
    kind, files = input_files(input)
    name = text_column(columns_of(files[0]) if kind == ".parquet" else ["text"], column)
    refuse_full(output)
    packed = _packed(model)
    with _running(ray, address), _quietly(ray, show_progress_bar), _our_errors(ray):
        gpus = float(ray.cluster_resources().get("GPU", 0))
        share = (1.0 if gpus else 0.0) if num_gpus is None else num_gpus
        workers = concurrency or int(gpus / share if share else ray.cluster_resources().get("CPU", 1)) or 1
        sources = ray.data.from_items([{"source": file} for file in files], override_num_blocks=len(files))
        rows = sources.map_batches(READERS[kind], batch_size=1, batch_format="pyarrow", **_LIGHT)
        vectors = rows.map_batches(
            _Worker,
            fn_constructor_args=(ray.put(packed), name, normalize_embeddings, "cuda" if share else "cpu"),
            batch_size=batch_size,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=workers),
            **({"num_gpus": share} if share else {"num_cpus": 1}),
        )
        with _folder(output) as place:
            vectors.write_parquet(place, min_rows_per_file=rows_per_file, ray_remote_args=_LIGHT)
    return _written(arrow, output)


class _Worker:
    """The model, loaded once in a process of its own, and what it does to a batch."""

    def __init__(self, packed: Any, column: str, normalize_embeddings: bool, device: str) -> None:
        self.column, self.normalize_embeddings = column, normalize_embeddings
        with TemporaryDirectory() as room:
            for name, content in require("ray", "ray").get(packed).items():
                path = Path(room) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.model = BertFlow.from_pretrained(room, device=device)

    def __call__(self, batch: Any) -> Any:
        arrow = require("pyarrow", "ray")
        texts = batch.column(self.column).to_pylist()
        vectors = self.model.encode(texts, normalize_embeddings=self.normalize_embeddings)
        values = arrow.array(vectors.ravel())
        return batch.append_column(EMBEDDING, arrow.FixedSizeListArray.from_arrays(values, vectors.shape[1]))


def _packed(model: str | Path | BertFlow) -> dict[str, bytes]:
    """Return the files of a model's folder, as they will stand at the workers."""
    with TemporaryDirectory() as room:
        if isinstance(model, BertFlow):
            needed = any(part.view.needs_encoder for part in model.parts)
            bundle = needed and hasattr(model.encoder, "save")
            folder = model.save_pretrained(Path(room) / "model", bundle_encoder=bundle)
        else:
            folder = model_folder.locate(model)
            model_folder.load_config(folder)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def _folder(output: str | Path) -> Iterator[str]:
    if "://" in str(output):  # object stores have no renaming
        yield str(output)
        return
    with atomic_folder(output) as temporary:
        yield str(temporary)


def _written(arrow: Any, output: str | Path) -> Written:
    """Count what is there, from the files' footers."""
    filesystem, path = filesystem_of(output)
    found = require("pyarrow.dataset", "ray").dataset(path, filesystem=filesystem, format="parquet")
    return Written(str(output), len(found.files), found.count_rows(), found.schema.field(EMBEDDING).type.list_size)


@contextmanager
def _running(ray: Any, address: str | None) -> Iterator[None]:
    """Use the Ray that runs, or start one, or join one, and leave it afterwards."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # or an "error" for each pool: a restart might fail
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise InputError(f"No Ray cluster can be joined at {address!r}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quietly(ray: Any, show_progress_bar: bool) -> Iterator[None]:
    """Set what Ray Data says and how much it hands out at once, for a while."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", category=DeprecationWarning, module=r"ray\."
        )  # Ray's settings, warning of themselves
        context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
        before = context.target_max_block_size, context.enable_progress_bars, logger.level
        context.target_max_block_size, context.enable_progress_bars = _BYTES_A_TASK, show_progress_bar
        if not show_progress_bar:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            context.target_max_block_size, context.enable_progress_bars = before[:2]
            logger.setLevel(before[2])


@contextmanager
def _our_errors(ray: Any) -> Iterator[None]:
    """Bring a worker's own sentence to the caller instead of Ray's long account of where it was raised."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, BertflowError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is None:
            raise
        raise InputError(str(cause)) from error
