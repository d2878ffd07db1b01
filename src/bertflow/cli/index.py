"""The commands around a search index: build, search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.models import Column
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, Seed, print_json, say, start, table
from bertflow.cli.recipes import completed, recipe_of
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.integrations.faiss import SearchResult

index = typer.Typer(no_args_is_help=True, help="Search your own texts by meaning, with FAISS.")


@index.command()
def build(
    texts: Annotated[
        str, typer.Argument(help="What to search: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")
    ],
    output: Annotated[Path, typer.Argument(help="Folder for the index.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A folder that `bertflow fit` wrote, or a hub id.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", "-e", help="Or `mini` (the default), a Hugging Face id or a folder, calibrated on the texts."
        ),
    ] = None,
    pooling: PoolingName = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            "-r",
            help="For --encoder: `whitening` (default), `best`, `raw`…; `bertflow recipes` explains each.",
            autocompletion=completed,
        ),
    ] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", "-c", help="Deprecated: --recipe says it.", hidden=True)
    ] = None,
    dimension: Annotated[
        int | None,
        typer.Option(
            "--dimension", "-d", help="Keep this many dimensions of a whitening; the loss is measured and shown."
        ),
    ] = None,
    factory: Annotated[str, typer.Option(help="FAISS's index: `Flat` (exact), `HNSW32`, `IVF256,Flat`…")] = "Flat",
    parameters: Annotated[str | None, typer.Option(help="For searching: `nprobe=16`, `efSearch=64`…")] = None,
    column: Column = None,
    bundle_encoder: Annotated[
        bool, typer.Option("--bundle-encoder", help="Put the encoder's weights into the folder.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Embed and calibrate texts, and write an index to search them by cosine.

    bertflow index build texts.txt my-index --encoder mini --recipe whitening

    bertflow index build texts.txt my-index --model my-model --factory HNSW32
    """
    progress = start(quiet)
    chosen = recipe_of(recipe, calibrator)
    if model is not None and (encoder or pooling or chosen):
        raise InputError("--model brings its own encoder and recipe: leave out --encoder, --pooling and --recipe.")
    from bertflow.encoders.choosing import as_encoder
    from bertflow.integrations.faiss import build_index
    from bertflow.integrations.index_folder import INDEX, check_target
    from bertflow.model import BertFlow
    from bertflow.storage.text_files import read_sentences

    check_target(output)  # before the work, not after
    rows = read_sentences(texts, column, keep_blank=True)
    source = (
        BertFlow.from_pretrained(model, device=device)
        if model
        else as_encoder(encoder or "mini", pooling, device=device)
    )
    made = build_index(
        source,
        rows,
        recipe=chosen,
        dimension=dimension,
        factory=factory,
        parameters=parameters,
        random_state=seed,
        show_progress_bar=progress,
    )
    saved = made.save(output, bundle_encoder=bundle_encoder)
    size, full = (saved / INDEX).stat().st_size, 4 * len(made) * made.report["full_dimension"]
    report = {"saved": str(saved), **made.report, "bytes": size, "bytes_of_full_vectors": full}
    if as_json:
        print_json(report)
    else:
        _show_build(report)


def _show_build(report: dict[str, Any]) -> None:
    say(
        f"Indexed {report['texts']} different texts ({report['repeated']} repeated, {report['blank']} blank) in "
        f"{report['dimension']} dimensions: {report['bytes'] / 1e6:.1f} MB."
    )
    if report["recall"] is not None:
        say(
            f"Against exact search in all {report['full_dimension']} ({report['bytes_of_full_vectors'] / 1e6:.1f} MB): "
            f"recall@{report['recall_at']} {report['recall']:.1%}, by {report['recall_queries']} of the texts as queries."
        )
    say(f"Saved to [bold]{escape(report['saved'])}[/]. Next:")
    say(f'  bertflow index search {escape(report["saved"])} "what are you looking for?"')


@index.command()
def search(
    folder: Annotated[Path, typer.Argument(help="A folder that `bertflow index build` wrote.", metavar="INDEX")],
    queries: Annotated[
        list[str] | None, typer.Argument(help="One or more queries, in quotes.", show_default=False)
    ] = None,
    queries_file: Annotated[
        str | None, typer.Option("--queries", help="Or a file of them, one a line; `-` for stdin.")
    ] = None,
    k: Annotated[int, typer.Option("-k", "--hits", help="Hits for each query.")] = 10,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the texts nearest in meaning.

    bertflow index search my-index "who repairs bicycles?"
    """
    start(quiet)
    if bool(queries) == bool(queries_file):
        raise InputError("Give queries, each in quotes, or --queries FILE; one of the two.")
    from bertflow.integrations.faiss import SearchIndex
    from bertflow.storage.text_files import read_sentences

    asked = queries or read_sentences(str(queries_file))
    loaded = SearchIndex.load(folder, device=device)
    result = loaded.search(asked, k)
    if as_json:
        found = [{"query": query, "hits": hits} for query, hits in zip(asked, result.to_dict()["hits"], strict=True)]
        print_json({"queries": found, "encode_seconds": result.encode_seconds, "search_seconds": result.search_seconds})
    else:
        _show_hits(asked, result, len(loaded))


def _show_hits(queries: list[str], result: SearchResult, texts: int) -> None:
    for query, hits in zip(queries, result.hits, strict=True):
        rows = [
            (str(hit.rank), f"{hit.cosine:.4f}", escape(hit.text) + (f" (×{hit.copies})" * (hit.copies > 1)))
            for hit in hits
        ]
        table(f"Nearest to “{escape(query)}”", ("rank", "cosine", "text"), rows, text_last=True)
    times = f"{1000 * result.encode_seconds:.1f} ms to encode, {1000 * result.search_seconds:.1f} ms to search {texts} texts"
    say(f"[dim]{times}[/]")
