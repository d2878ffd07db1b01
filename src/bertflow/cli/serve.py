"""The command that serves models and indexes over HTTP: serve."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Device, Quiet, print_json, say, start
from bertflow.errors import InputError, require

logger = logging.getLogger(__name__)

MOST_TEXTS = 2000  # that explain a cosine: two million pairs


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL…", help="`FOLDER`, `NAME=FOLDER` or a hub id each.", show_default=False),
    ] = None,
    index: Annotated[
        list[str] | None, typer.Option("--index", "-i", help="A folder of `bertflow index build`, or `NAME=FOLDER`.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help="File with texts like yours, to explain a cosine: `1 in 240 000` pairs are as near."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address; `0.0.0.0` can be reached from other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", help="The port; 0 takes any free one.")] = 8000,
    keys_file: Annotated[
        Path | None,
        typer.Option("--keys", help="File with the keys that clients may show, one a line; also BERTFLOW_API_KEYS."),
    ] = None,
    max_texts: Annotated[int, typer.Option(help="Most texts in one request.")] = 2048,
    max_characters: Annotated[int, typer.Option(help="Most characters in one text.")] = 100_000,
    max_body: Annotated[int, typer.Option(help="Most bytes in one request.")] = 16 << 20,
    max_queue: Annotated[int, typer.Option(help="Most texts that may wait; further clients get status 429.")] = 16_384,
    batch_tokens: Annotated[int, typer.Option(help="How many tokens to compute together.")] = 8192,
    batching: Annotated[
        bool, typer.Option("--batching/--no-batching", help="Compute the requests of several clients together.")
    ] = True,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Serve models and search indexes to the clients of OpenAI, LangChain and Hugging Face, with a page at /.

    bertflow serve my-model

    bertflow serve news=my-model text-embedding-3-small=other-model --index my-index --keys keys.txt --host 0.0.0.0
    """
    start(quiet)
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, "serve")
    from bertflow.serving import Limits, create_app, read_keys
    from bertflow.serving.loading import load_indexes, load_models
    from bertflow.serving.running import bind, hosts_for, is_local, listen, run
    from bertflow.storage.text_files import read_sentences

    if not models and not index:
        raise InputError("Give a model, such as  bertflow serve my-model , or an index with --index.")
    limits = Limits(max_texts, max_characters, max_body, max_queue, batch_tokens)
    keys = read_keys(keys_file)
    known = read_sentences(texts)[:MOST_TEXTS] if texts else []
    with bind(host, port) as taken:
        loaded, indexes = load_models(models or [], device), load_indexes(index or [], device)
        hosts = hosts_for(host, bool(keys))
        app = create_app(loaded, indexes, keys=keys, limits=limits, batching=batching, hosts=hosts, texts=known)
        if not keys and not is_local(host):
            logger.warning("Everybody who reaches %s may use this service: give --keys or BERTFLOW_API_KEYS.", host)
        for model in loaded.values():
            model.encode(["The first text takes longest, so it is ours."])
        address = listen(taken)
        if as_json:
            print_json({"url": address, "models": list(loaded), "indexes": list(indexes), "keys": bool(keys)})
            sys.stdout.flush()  # whoever reads it waits for it
        else:
            _show(address, list(loaded), list(indexes))
        run(app, taken)


def _show(address: str, models: list[str], indexes: list[str]) -> None:
    for what, names in (("models", models), ("indexes", indexes)):
        if names:
            say(f"{what}: {escape(', '.join(names))}")
    say(f"Page: [bold]{address}/[/]   OpenAI: {address}/v1   Hugging Face: {address}/embed   Stop: Ctrl+C")
