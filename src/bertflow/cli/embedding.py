"""The commands for vectors on disk: embed into a file or a folder of shards, and calibrate shards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.models import Column, ModelFolder
from bertflow.cli.option_groups import grouped
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, fail, print_json, say, start
from bertflow.cli.recipes import RecipeName, RemoteCode, recipe_of
from bertflow.errors import InputError, require
from bertflow.storage.outputs import check_output_file, check_output_folder

if TYPE_CHECKING:
    from bertflow.calibrators import Calibrator
    from bertflow.encoders.base import TextEncoder
    from bertflow.model import BertFlow
    from bertflow.storage.shards import Manifest, Rank, Shards

WRITTEN = (".npy", ".npz", ".safetensors", ".parquet", ".jsonl")
AcceptChanged = Annotated[
    bool,
    typer.Option(
        "--accept-changed-encoder",
        help="Continue although the encoder differs from the one that the model was fitted on.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that bertflow did not write.")]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale vectors to length one.")]
RankNumber = Annotated[
    int | None,
    typer.Option("--rank", help="The number of this process among several, from 0; default: from torchrun or slurm."),
]
WorldSize = Annotated[int | None, typer.Option("--world-size", help="How many processes share the work.")]


@dataclass(frozen=True)
class OutputOptions:
    """How vectors are written, and by which of several processes."""

    normalize: Normalize = False
    rank: RankNumber = None
    world_size: WorldSize = None
    overwrite: Overwrite = False
    device: Device = None
    as_json: AsJson = False
    quiet: Quiet = False


@grouped
def embed(
    sentences: Annotated[
        str, typer.Argument(help="Text to embed: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help=f"Where to: {', '.join(WRITTEN)}; a folder for shards.")
    ],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A folder that `bertflow fit` wrote, or a hub id.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Instead of a model: raw vectors of this encoder.")
    ] = None,
    pooling: PoolingName = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write uncalibrated vectors, to fit on: the encoder's, or those of a recipe's views."
        ),
    ] = False,
    recipe: RecipeName = None,
    column: Column = None,
    precision: Annotated[
        str, typer.Option(help="Number format in a file: `float32`, `float16`, `int8`, `binary`, `ubinary`.")
    ] = "float32",
    shards: Annotated[
        bool, typer.Option("--shards", help="Write a folder of shards; default if the output has no ending.")
    ] = False,
    shard_rows: Annotated[int, typer.Option(help="How many vectors each shard holds.")] = 50_000,
    dtype: Annotated[str, typer.Option(help="Number format in shards: `float16` or `float32`.")] = "float16",
    trust_remote_code: RemoteCode = False,
    accept_changed_encoder: AcceptChanged = False,
    asked: OutputOptions,
) -> None:
    """Write the calibrated vectors of your sentences: row i belongs to line i (a blank line has a vector too).

    Text of any size goes into a folder of shards. Stopped or killed, the same command goes on where it was; several
    processes (torchrun, slurm, `--rank`) share one folder:

        bertflow embed corpus.txt --encoder mini --raw --recipe best --output vectors
    """
    progress = start(asked.quiet)
    source = partial(_source, model, encoder, pooling, recipe_of(recipe), trust_remote_code, accept_changed_encoder)
    if output.suffix in WRITTEN and not shards:
        check_output_file(output, [sentences, model, encoder], overwrite=asked.overwrite)
        _embed_into_file(
            sentences, output, source, asked, progress, recipe=recipe, raw=raw, column=column, precision=precision
        )
        return
    if output.suffix and not shards and not output.is_dir():
        raise InputError(
            f"{output} ends in {output.suffix!r}; vectors are written to {', '.join(WRITTEN)}, or to a folder with --shards."
        )
    if precision != "float32":
        raise InputError("--precision is for files; for shards, give --dtype.")
    from bertflow.scale import write_shards
    from bertflow.storage.shards import Rank, local_device

    check_output_folder(output, [sentences, model, encoder])
    mine = Rank.choose(asked.rank, asked.world_size)
    with _stoppable(output):
        options: dict[str, Any] = {
            "normalize": asked.normalize,
            "dtype": dtype,
            "shard_rows": shard_rows,
            "column": column,
        }
        options |= {"recipe": recipe_of(recipe), "raw": raw, "rank": mine, "show_progress_bar": progress}
        manifest = write_shards(sentences, source(local_device(asked.device)), output, **options)
    _tell(output, manifest, mine, asked.as_json)


@grouped
def transform(
    vectors: Annotated[
        Path, typer.Argument(help="Raw vectors: a folder that `bertflow embed --raw` wrote, or .npy, .npz, .parquet…")
    ],
    model: ModelFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder, or file, for the calibrated vectors.")],
    *,
    ids: Annotated[
        str | None, typer.Option(help="Text file with one id per row, written with the vectors; only for a file.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column or array that holds the vectors; only for a file.")] = None,
    dtype: Annotated[str | None, typer.Option(help="`float16` or `float32`; default: that of the raw vectors.")] = None,
    asked: OutputOptions,
) -> None:
    """Calibrate raw vectors without encoding again, shard by shard in little memory; it can be stopped and resumed.

    bertflow transform vectors.npy --model my-calibrator --output calibrated.npy
    """
    progress = start(asked.quiet)
    from bertflow.storage.shards import is_shards
    from bertflow.storage.vector_files import holds_vectors

    if not is_shards(vectors) and holds_vectors(vectors, column):
        check_output_file(output, [vectors, model, ids], overwrite=asked.overwrite)
        _transform_file(vectors, model, output, ids, column, dtype, asked)
        return
    from bertflow.scale import transform_shards
    from bertflow.storage.shards import Rank, Shards, local_device

    check_output_folder(output, [vectors, model])
    mine, raw = Rank.choose(asked.rank, asked.world_size), Shards(vectors)
    with _stoppable(output):
        fitted = _fitted_on(raw, model, local_device(asked.device))
        manifest = transform_shards(
            raw, fitted, output, normalize=asked.normalize, dtype=dtype, rank=mine, show_progress_bar=progress
        )
    _tell(output, manifest, mine, asked.as_json)


def _fitted_on(raw: Shards, model: str, device: str | None) -> BertFlow | Calibrator:
    """Load a model without its encoder, or a calibrator; refuse one that was fitted on other vectors."""
    from bertflow.calibrators import Calibrator
    from bertflow.model import BertFlow
    from bertflow.storage import model_folder

    folder = model_folder.locate(model)
    known = model_folder.load_config(folder).get("encoder")
    if known is None:
        return Calibrator.from_pretrained(folder, device=device)
    if known.get("fingerprint") != raw.manifest.encoder.get("fingerprint"):
        raise InputError(
            f"{model} was fitted on vectors of the encoder {known.get('name')!r}, and {raw.folder} holds those of "
            f"{raw.manifest.encoder.get('name')!r} or of another state of it: they do not belong together."
        )
    return BertFlow.from_pretrained(folder, device=device, defer_encoder=True)


def _transform_file(
    file: Path,
    model: str,
    output: Path,
    ids: str | None,
    column: str | None,
    dtype: str | None,
    asked: OutputOptions,
) -> None:
    from bertflow.arrays import as_matrix, unit_rows
    from bertflow.calibrators import Calibrator
    from bertflow.storage.text_files import read_sentences
    from bertflow.storage.vector_files import read_vectors, write_vectors

    calibrator = Calibrator.from_pretrained(model, device=asked.device)
    rows = as_matrix(read_vectors(file, column), str(file))
    names = {} if ids is None else {"ids": read_sentences(ids, keep_blank=True)}
    if names and len(names["ids"]) != len(rows):
        raise InputError(
            f"{ids} has {len(names['ids'])} ids, and {file} has {len(rows)} vectors: one each was expected."
        )
    if names and output.suffix in (".npy", ".safetensors"):
        raise InputError(f"{output.suffix} has no room for ids; write to .npz, .parquet or .jsonl.")
    calibrated = calibrator.transform(rows)
    calibrated = unit_rows(calibrated) if asked.normalize else calibrated
    write_vectors(output, calibrated.astype(dtype) if dtype else calibrated, names)
    _tell_file(output, calibrated, asked)


def _tell_file(output: Path, vectors: Any, asked: OutputOptions) -> None:
    if asked.as_json:
        size = {"rows": len(vectors), "dim": vectors.shape[1]}
        print_json({"output": str(output), **size, "normalized": asked.normalize})
    else:
        say(f"Wrote {len(vectors)} vectors of {vectors.shape[1]} dimensions to [bold]{escape(str(output))}[/].")


def _source(
    model: str | None,
    encoder: str | None,
    pooling: str | None,
    recipe: str | None,
    trust_remote_code: bool,
    accept_changed_encoder: bool,
    device: str | None,
) -> BertFlow | TextEncoder:
    """Load the model or the encoder that the options name."""
    if (model is None) == (encoder is None):
        raise InputError("Give --model for calibrated vectors or --encoder for raw ones: one of the two.")
    options: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
    if model is None:
        from bertflow.encoders.choosing import as_encoder

        return as_encoder(encoder, pooling, device=device, **options)
    if pooling is not None or recipe is not None:
        raise InputError("A model has its own pooling and recipe; leave out --pooling and --recipe.")
    from bertflow.model import BertFlow

    return BertFlow.from_pretrained(model, device=device, accept_changed_encoder=accept_changed_encoder, **options)


@contextmanager
def _stoppable(output: Path) -> Iterator[None]:
    """Turn Ctrl-C, and a scheduler's SIGTERM, into a sentence that says how to go on."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        fail(f"Stopped; every finished shard in {output} is kept. Run the same command again to go on.", 130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(output: Path, manifest: Manifest, rank: Rank, as_json: bool) -> None:
    from bertflow.storage.shards import read_manifest

    missing = manifest.missing(read_manifest(output)[1])
    result = {"rows": manifest.rows, "dim": manifest.dim, "dtype": manifest.dtype, "normalized": manifest.normalized}
    if as_json:
        print_json({"output": str(output), **result, "shards": manifest.count, "missing": missing})
    elif missing:
        say(f"{str(rank).capitalize()} is done; the others have {len(missing)} of {manifest.count} shards to write.")
    else:
        what = f"{manifest.rows} vectors of {manifest.dim} dimensions in {manifest.count} shard(s)"
        say(f"[bold]{escape(str(output))}[/] holds {what}, {manifest.dtype}.")


def _embed_into_file(
    sentences: str,
    output: Path,
    source: Callable[[str | None], BertFlow | TextEncoder],
    asked: OutputOptions,
    progress: bool,
    *,
    recipe: str | None,
    raw: bool,
    column: str | None,
    precision: str,
) -> None:
    if output.suffix == ".parquet":
        require("pyarrow.parquet", "parquet")
    if recipe is not None:
        raise InputError(
            "--recipe is for raw shards, where a recipe is fitted later; for a file, fit first: bertflow fit."
        )
    from bertflow.arrays import quantized, unit_rows
    from bertflow.storage.text_files import read_sentences
    from bertflow.storage.vector_files import write_vectors

    texts = read_sentences(sentences, column, keep_blank=True)
    loaded: Any = source(asked.device)
    if raw and hasattr(loaded, "parts"):
        views = [part.view for part in loaded.parts]
        import numpy as np

        from bertflow.encoders.base import encode_views

        vectors = np.hstack(encode_views(views, texts, show_progress_bar=progress))
    else:
        vectors = loaded.encode(texts, show_progress_bar=progress)
    vectors = quantized(unit_rows(vectors) if asked.normalize else vectors, precision)
    write_vectors(output, vectors, {"text": texts} if output.suffix in (".parquet", ".jsonl") else None)
    _tell_file(output, vectors, asked)
