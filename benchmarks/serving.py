"""Texts a second of `bertflow serve`, with batching and without, beside a plain SentenceTransformer endpoint in FastAPI.

python benchmarks/serving.py

The same weights, the same web server, one text a request, so many clients that each send the next request when the last
is answered. Contenders take turns; ratios are of one run. Each server is a process of its own, the clients are another.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Annotated

import typer

from bertflow.data import sample_sentences

PATH = "/embed"
PLAIN, ALONE, TOGETHER = "plain", "without batching", "batched"


def serve(contender: str, folder: str) -> None:
    """Run one of the servers; prints its address when it can be asked."""
    from bertflow.serving.running import bind, listen, run

    with bind("127.0.0.1", 0) as taken:
        app = _plain() if contender == PLAIN else _ours(folder, together=contender == TOGETHER)
        print(listen(taken), flush=True)
        run(app, taken)


def _plain() -> object:
    """The endpoint that tutorials show: a function, which FastAPI calls in a thread of its pool."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from bertflow.data import mini_folder

    body = Transformer(str(mini_folder()))
    model = SentenceTransformer(modules=[body, Pooling(body.get_embedding_dimension())], device="cpu")
    app = FastAPI()

    class Asked(BaseModel):
        inputs: str

    def embed(asked: Asked) -> list[float]:
        return model.encode(asked.inputs, show_progress_bar=False).tolist()

    embed.__annotations__["asked"] = Asked
    app.post(PATH)(embed)
    model.encode("The first text takes longest.")
    return app


def _ours(folder: str, together: bool) -> object:
    from bertflow import BertFlow
    from bertflow.serving import create_app

    model = BertFlow.from_pretrained(folder, device="cpu")
    model.encode("The first text takes longest.")
    return create_app({"mini": model}, batching=together)


@contextmanager
def started(contender: str, folder: str) -> Iterator[tuple[str, int]]:
    """Start a server; yields its address."""
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    command = [sys.executable, __file__, "--contender", contender, "--folder", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | quiet) as running:
        try:
            line = running.stdout.readline() if running.stdout else ""
            yield line.strip(), running.pid
        finally:
            running.terminate()


async def client(port: int, texts: Iterator[str], end: float, seconds: list[float]) -> None:
    """Ask until the time is over, over one connection; HTTP by hand, so that the clients leave the cores to the servers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        body = json.dumps({"inputs": next(texts)}).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        start = time.perf_counter()
        writer.write(f"{head}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer.lower())
        if not answer.startswith(b"HTTP/1.1 200") or length is None:
            raise RuntimeError(f"The server answered {answer.decode()!r}.")
        await reader.readexactly(int(length.group(1)))
        seconds.append(time.perf_counter() - start)
    writer.close()


async def measure(port: int, clients: int, duration: float) -> tuple[float, float, float]:
    """Return (texts a second, median and 99th percentile of a request's milliseconds) of so many clients."""
    texts, seconds = cycle(sample_sentences()), []
    start = time.perf_counter()
    await asyncio.gather(*(client(port, texts, start + duration, seconds) for _ in range(clients)))
    rate = len(seconds) / (time.perf_counter() - start)
    percentiles = statistics.quantiles(seconds, n=100) if len(seconds) > 1 else seconds * 99
    return rate, 1000 * percentiles[49], 1000 * percentiles[98]


def resident(pid: int) -> float:
    """Return a process's memory in MB."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:  # noqa: PTH123
        found = re.search(r"VmRSS:\s+(\d+)", file.read())
    return int(found.group(1)) / 1024 if found else float("nan")


def compare(duration: float, repeats: int, counts: list[int]) -> None:
    """Start all servers and ask them in turns."""
    from bertflow import BertFlow

    with tempfile.TemporaryDirectory() as room:
        folder = str(BertFlow.fit(sample_sentences(), "mini", recipe="whitening@mean").save_pretrained(f"{room}/model"))
        with started(PLAIN, folder) as plain, started(ALONE, folder) as alone, started(TOGETHER, folder) as together:
            servers = {PLAIN: plain, ALONE: alone, TOGETHER: together}
            ports = {name: int(address.rpartition(":")[2]) for name, (address, _) in servers.items()}
            for port in ports.values():
                asyncio.run(measure(port, max(counts), 2))
            before = {name: resident(pid) for name, (_, pid) in servers.items()}
            for clients in counts:
                found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
                for _ in range(repeats):
                    for name, port in ports.items():
                        found[name].append(asyncio.run(measure(port, clients, duration)))
                report(clients, found)
            for name, (_, pid) in servers.items():
                print(f"{name}: {before[name]:.0f} MB after the first requests, {resident(pid):.0f} MB after all")


def report(clients: int, found: dict[str, list[tuple[float, float, float]]]) -> None:
    """Print what so many clients saw: medians over the turns, and the ratio of each turn."""
    print(f"\n{clients} client(s)")
    for name, runs in found.items():
        rate, middle, late = (statistics.median(values) for values in zip(*runs, strict=True))
        ratios = [run[0] / plain[0] for run, plain in zip(runs, found[PLAIN], strict=True)]
        spread = f"{statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f})"
        print(f"  {name:18} {rate:8.0f} texts/s   p50 {middle:7.1f} ms   p99 {late:7.1f} ms   {spread}")


def main(
    seconds: Annotated[float, typer.Option(help="Of each measurement.")] = 5,
    repeats: Annotated[int, typer.Option(help="Turns.")] = 3,
    clients: Annotated[str, typer.Option(help="At once.")] = "1,8,64",
    contender: Annotated[str, typer.Option(hidden=True)] = "",
    folder: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Compare, or run one of the servers."""
    if contender:
        serve(contender, folder)
    else:
        compare(seconds, repeats, [int(count) for count in clients.split(",")])


if __name__ == "__main__":
    typer.run(main)
