"""Requests of all clients, computed together: whatever waits goes into the next batch, up to a budget of tokens.

Nobody waits for a batch to fill: while one is computed, the next one gathers by itself. Only where the last batch came from
several requests does the next one stay open for some milliseconds, as more are then on their way.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bertflow.errors import BertflowError

Item = TypeVar("Item")
Row = TypeVar("Row")


class QueueFullError(BertflowError):
    """Too much waits already; ``retry_after`` seconds from now there is probably room."""

    def __init__(self, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"The service is busy: {waiting} texts wait and the queue holds {limit}. Try again in {retry_after} s."
        )
        self.retry_after = retry_after


@dataclass(frozen=True)
class BatchDone:
    """What is known of a computed batch, for the metrics: texts, requests that took part, tokens, seconds."""

    texts: int
    requests: int
    tokens: int
    seconds: float


@dataclass
class _Job(Generic[Item, Row]):
    """A request in the queue: its items with their tokens, and the rows computed so far."""

    items: Sequence[Item]
    tokens: Sequence[int]
    done: asyncio.Future[list[Row]]
    taken: int = 0
    rows: list[Row] = field(default_factory=list)

    def take(self, room: int, at_least: int) -> tuple[list[Item], int]:
        """Return the next items whose tokens fit into ``room``, and how many tokens they have."""
        start, used = self.taken, 0
        while self.taken < len(self.items):
            cost = self.tokens[self.taken]
            if used + cost > room and self.taken - start >= at_least:
                break
            used += cost
            self.taken += 1
        return list(self.items[start : self.taken]), used


class Batcher(Generic[Item, Row]):
    """Gathers items of many requests into batches and computes these one after another, in one thread.

    A request that is larger than a batch gives way to the others after each batch. If a batch fails, each of its
    requests is computed alone, so that one client's text never fails another's.

    Args:
        compute: Maps items to as many rows; runs in the batcher's thread.
        budget: Tokens a batch; one item always goes.
        limit: Items that may wait, of all requests; beyond it ``submit`` raises ``QueueFullError``.
        wait: Seconds that a batch stays open after one that several requests shared.
        together: False computes every request by itself, for comparison.
        observe: Is told of every batch.
    """

    def __init__(
        self,
        compute: Callable[[list[Item]], Sequence[Row]],
        *,
        budget: int,
        limit: int,
        wait: float = 0.002,
        together: bool = True,
        observe: Callable[[BatchDone], None] = lambda done: None,
    ) -> None:
        self.waiting = 0
        self._compute, self._budget, self._limit, self._wait = compute, budget, limit, wait
        self._together, self._observe = together, observe
        self._jobs: deque[_Job[Item, Row]] = deque()
        self._thread = ThreadPoolExecutor(1, "bertflow-serve")
        self._task: asyncio.Task[None] | None = None
        self._seconds_per_item = 0.0
        self._shared = False

    async def submit(self, items: Sequence[Item], tokens: Sequence[int]) -> list[Row]:
        """Return one row for each item, computed together with what others have submitted."""
        if self.waiting + len(items) > self._limit:
            expected = math.ceil(self.waiting * self._seconds_per_item)
            raise QueueFullError(self.waiting, self._limit, min(max(expected, 1), 60))
        job: _Job[Item, Row] = _Job(items, tokens, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self.waiting += len(items)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.done

    async def finish(self) -> None:
        """Wait until everything that was taken is answered."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._jobs:
            if self._shared and self._together:
                await asyncio.sleep(self._wait)
            batch, tokens = self._take()
            if not batch:
                continue
            start = time.perf_counter()
            await self._answer(batch)
            self._report(batch, tokens, time.perf_counter() - start)

    def _take(self) -> tuple[list[tuple[_Job[Item, Row], list[Item]]], int]:
        """Return the next batch, as requests with those of their items that take part, and its tokens."""
        batch: list[tuple[_Job[Item, Row], list[Item]]] = []
        tokens = 0
        while self._jobs and (self._together or not batch):
            job = self._jobs.popleft()
            if job.done.done():  # its client has gone
                self.waiting -= len(job.items) - job.taken
                continue
            items, cost = job.take(self._budget - tokens, at_least=0 if batch else 1)
            tokens += cost
            self.waiting -= len(items)
            if items:
                batch.append((job, items))
            if job.taken < len(job.items):
                self._jobs.append(job) if items else self._jobs.appendleft(job)
                break
        return batch, tokens

    async def _answer(self, batch: list[tuple[_Job[Item, Row], list[Item]]]) -> None:
        try:
            rows = await self._computed([item for _, items in batch for item in items])
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0][0], error)
            else:
                for one in batch:
                    await self._answer([one])
            return
        end = 0
        for job, items in batch:
            start, end = end, end + len(items)
            job.rows.extend(rows[start:end])
            if len(job.rows) == len(job.items) and not job.done.done():
                job.done.set_result(job.rows)

    async def _computed(self, items: list[Item]) -> Sequence[Row]:
        rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, items)
        if len(rows) != len(items):
            raise RuntimeError(f"{len(items)} items gave {len(rows)} rows.")
        return rows

    def _fail(self, job: _Job[Item, Row], error: Exception) -> None:
        if not job.done.done():
            job.done.set_exception(error)

    def _report(self, batch: list[tuple[_Job[Item, Row], list[Item]]], tokens: int, seconds: float) -> None:
        texts = sum(len(items) for _, items in batch)
        self._shared = len(batch) > 1
        self._seconds_per_item += 0.2 * (seconds / texts - self._seconds_per_item)
        self._observe(BatchDone(texts, len(batch), tokens, seconds))
