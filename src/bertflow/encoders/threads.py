"""Threads that work on some items while the caller makes the next ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import torch

MOST_WORKERS = 8  # with more, small models wait for Python's lock; further cores are shared out among these

Item = TypeVar("Item")
Result = TypeVar("Result")


def compute_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], device: torch.device
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with its result, in order, as fast as the device allows.

    On a CPU several items are computed at once, each by few threads: sharing out whole items needs no waiting for each
    other, as sharing out every single multiplication does. For a cuda device one thread computes while the caller's makes
    the next items. A lone item and other devices need no thread.
    """
    items = iter(items)
    if device.type == "cuda":
        yield from _in_threads(function, items, 1)
        return
    threads = torch.get_num_threads()
    first = list(islice(items, 2))
    items = chain(first, items)
    if device.type != "cpu" or threads == 1 or len(first) < 2:
        yield from ((item, function(item)) for item in items)
        return
    workers = min(threads, MOST_WORKERS)
    try:
        yield from _in_threads(function, items, workers, partial(torch.set_num_threads, threads // workers))
    finally:
        torch.set_num_threads(threads)  # each worker set its own number, but that of MKL is one for all


def _in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, start: Callable[[], None] | None = None
) -> Iterator[tuple[Item, Result]]:
    """Map in threads, in order; at most a few items wait, so that memory stays flat."""
    pool = ThreadPoolExecutor(workers, "bertflow", start)
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) > 3 * workers:
                done, result = waiting.popleft()
                yield done, result.result()
        for done, result in waiting:
            yield done, result.result()
    finally:
        pool.shutdown(cancel_futures=True)
