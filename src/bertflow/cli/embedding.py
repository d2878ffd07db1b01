"""The commands for vectors on disk: embed into a file or a folder of shards, and calibrate shards."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.models import Column, ModelFolder
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, fail, print_json, say, start
from bertflow.errors import InputError, require

if TYPE_CHECKING:
    from bertflow.arrays import Matrix
    from bertflow.calibrators import Calibrator
    from bertflow.encoders.transformer import TextEncoder
    from bertflow.storage.shards import Manifest, Rank

Normalize = Annotated[bool, typer.Option("--normalize", help="Scale vectors to length one.")]
RankNumber = Annotated[
    int | None,
    typer.Option("--rank", help="Which of several processes this is, from 0; default: as torchrun or slurm say."),
]
WorldSize = Annotated[int | None, typer.Option("--world-size", help="How many processes share the work.")]
_SMALL = (".npy", ".jsonl", ".parquet")


def embed(
    sentences: Annotated[
        str, typer.Argument(help="Text to embed: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to: .npy, .parquet or .jsonl; a folder for shards.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A folder that `bertflow fit` wrote, or a hub id.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Instead of a model: raw vectors of this encoder.")
    ] = None,
    pooling: PoolingName = None,
    raw: Annotated[bool, typer.Option("--raw", help="The encoder's own vectors, uncalibrated: to fit on.")] = False,
    column: Column = None,
    normalize: Normalize = False,
    shards: Annotated[
        bool, typer.Option("--shards", help="Write a folder of shards; default if the output has no ending.")
    ] = False,
    shard_rows: Annotated[int, typer.Option(help="Vectors a shard.")] = 50_000,
    dtype: Annotated[str, typer.Option(help="Of shards: `float16` or `float32`.")] = "float16",
    rank: RankNumber = None,
    world_size: WorldSize = None,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the calibrated vectors of your sentences: row i belongs to line i (a blank line has a vector too).

    Text of any size goes into a folder of shards. Stopped or killed, the same command goes on where it was; several
    processes (torchrun, slurm, `--rank`) share one folder:

        bertflow embed corpus.txt --encoder mini --raw --output vectors
    """
    progress = start(quiet)
    if output.suffix in _SMALL and not shards:
        _embed_into_file(sentences, output, model, encoder, pooling, raw, column, normalize, device, as_json, progress)
        return
    if output.suffix and not shards and not output.is_dir():
        raise InputError(
            f"{output} ends in {output.suffix!r}; vectors are written to {', '.join(_SMALL)}, or to a folder with --shards."
        )
    from bertflow.scale import write_shards
    from bertflow.storage.shards import Rank, local_device

    mine = Rank.choose(rank, world_size)
    with _stoppable(output):
        parts = _load(model, encoder, pooling, raw, local_device(device))
        options: dict[str, Any] = {"normalize": normalize, "dtype": dtype, "shard_rows": shard_rows, "column": column}
        manifest = write_shards(
            sentences, parts[0], output, calibrator=parts[1], rank=mine, show_progress_bar=progress, **options
        )
    _tell(output, manifest, mine, as_json)


def transform(
    shards: Annotated[Path, typer.Argument(help="Raw vectors: a folder that `bertflow embed --raw` wrote.")],
    model: ModelFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the calibrated shards.")],
    normalize: Normalize = False,
    dtype: Annotated[str | None, typer.Option(help="`float16` or `float32`; default: as the raw ones.")] = None,
    rank: RankNumber = None,
    world_size: WorldSize = None,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Calibrate raw shards without encoding again: shard by shard, resumable, in flat memory."""
    progress = start(quiet)
    from bertflow.scale import transform_shards
    from bertflow.storage import model_folder
    from bertflow.storage.shards import Rank, Shards, local_device

    mine, raw = Rank.choose(rank, world_size), Shards(shards)
    folder = model_folder.locate(model)
    known = model_folder.load_config(folder).get("encoder", {})
    if known and known.get("fingerprint") != raw.manifest.encoder.get("fingerprint"):
        raise InputError(
            f"{model} was fitted on vectors of the encoder {known.get('name')!r}, and {shards} holds those of "
            f"{raw.manifest.encoder.get('name')!r} or of another state of it: they do not belong together."
        )
    with _stoppable(output):
        calibrator = model_folder.load_calibrator(folder, device=local_device(device))
        manifest = transform_shards(
            raw, calibrator, output, normalize=normalize, dtype=dtype, rank=mine, show_progress_bar=progress
        )
    _tell(output, manifest, mine, as_json)


def _load(
    model: str | None, encoder: str | None, pooling: str | None, raw: bool, device: str | None
) -> tuple[TextEncoder, Calibrator | None]:
    if (model is None) == (encoder is None):
        raise InputError("Give --model for calibrated vectors or --encoder for raw ones: one of the two.")
    if model is None:
        from bertflow.encoders.transformer import as_encoder

        return as_encoder(encoder, pooling, device=device), None
    if pooling is not None:
        raise InputError("A model has its own pooling; leave out --pooling.")
    from bertflow.model import BertFlow

    loaded = BertFlow.from_pretrained(model, device=device)
    return loaded.encoder, None if raw else loaded.calibrator


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
    model: str | None,
    encoder: str | None,
    pooling: str | None,
    raw: bool,
    column: str | None,
    normalize: bool,
    device: str | None,
    as_json: bool,
    progress: bool,
) -> None:
    write = {".npy": _write_npy, ".jsonl": _write_jsonl, ".parquet": _write_parquet}[output.suffix]
    if output.suffix == ".parquet":
        require("pyarrow.parquet", "parquet")
    from bertflow.arrays import unit_rows
    from bertflow.storage.atomic import atomic_file
    from bertflow.storage.text_files import read_sentences

    texts = read_sentences(sentences, column, keep_blank=True)
    text_encoder, calibrator = _load(model, encoder, pooling, raw, device)
    vectors = text_encoder.encode(texts, show_progress_bar=progress)
    vectors = vectors if calibrator is None else calibrator.transform(vectors)
    vectors = unit_rows(vectors) if normalize else vectors
    with atomic_file(output) as temporary:
        write(temporary, texts, vectors)
    if as_json:
        print_json({"output": str(output), "rows": len(vectors), "dim": vectors.shape[1], "normalized": normalize})
    else:
        say(f"Wrote {len(vectors)} vectors of {vectors.shape[1]} dimensions to [bold]{escape(str(output))}[/].")


def _write_npy(path: Path, texts: list[str], vectors: Matrix) -> None:
    import numpy as np

    np.save(path, vectors)


def _write_jsonl(path: Path, texts: list[str], vectors: Matrix) -> None:
    with path.open("w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors, strict=True):
            file.write(json.dumps({"text": text, "embedding": vector.tolist()}, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, texts: list[str], vectors: Matrix) -> None:
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])
    parquet.write_table(arrow.table({"text": texts, "embedding": column}), path)
