import asyncio
import threading

import numpy as np
import pytest

from bertflow.serving.batching import Batcher, QueueFullError


class Doubling:
    """Doubles numbers, notes its batches, and can be held up."""

    def __init__(self):
        self.batches, self.open = [], threading.Event()
        self.open.set()

    def __call__(self, items):
        self.open.wait(5)
        self.batches.append(items)
        if any(item < 0 for item in items):
            raise ValueError("negative")
        return [2 * item for item in items]


def batcher(compute, **options):
    return Batcher(compute, **({"budget": 10, "limit": 1000} | options))


def submit(batcher, *requests, tokens=1):
    """Submit all requests at once and return what each gives, its rows or its error."""

    async def all_of_them():
        jobs = [batcher.submit(request, [tokens] * len(request)) for request in requests]
        return await asyncio.gather(*jobs, return_exceptions=True)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("together", [True, False])
def test_every_request_gets_its_own_rows_whatever_the_sizes(together):
    rng = np.random.default_rng(0)
    requests = [rng.integers(0, 1000, size=rng.integers(1, 40)).tolist() for _ in range(50)]
    made = batcher(Doubling(), limit=5000, together=together)
    assert submit(made, *requests) == [[2 * item for item in request] for request in requests]
    assert made.waiting == 0


def test_requests_are_computed_together_within_the_budget():
    compute, seen = Doubling(), []
    submit(batcher(compute, budget=10, observe=seen.append), *([i] for i in range(25)), tokens=2)
    assert [len(batch) for batch in compute.batches] == [5, 5, 5, 5, 5]
    assert [(done.texts, done.requests, done.tokens) for done in seen] == [(5, 5, 10)] * 5


def test_an_item_beyond_the_budget_goes_alone():
    compute = Doubling()
    assert submit(batcher(compute, budget=1), [1, 2, 3], tokens=7) == [[2, 4, 6]]
    assert compute.batches == [[1], [2], [3]]


def test_without_batching_every_request_is_computed_by_itself():
    compute = Doubling()
    submit(batcher(compute, together=False), [1, 2], [3], [4])
    assert compute.batches == [[1, 2], [3], [4]]


def test_a_large_request_gives_way_after_each_batch():
    compute = Doubling()
    submit(batcher(compute, budget=10), list(range(100)), [7])
    assert 7 in compute.batches[1]
    assert len(compute.batches) == 11


def test_a_full_queue_refuses_and_has_room_again():
    compute = Doubling()
    made = batcher(compute, limit=3)
    first, second, refused = submit(made, [1, 2], [3], [4])
    assert (first, second) == ([2, 4], [6])
    assert isinstance(refused, QueueFullError)
    assert 1 <= refused.retry_after <= 60
    assert submit(made, [5]) == [[10]]


def test_one_request_that_fails_does_not_fail_the_others():
    first, failed, last = submit(batcher(Doubling()), [1, 2], [3, -1], [4])
    assert (first, last) == ([2, 4], [8])
    assert isinstance(failed, ValueError)


def test_the_rest_of_a_failed_request_is_dropped():
    compute = Doubling()
    made = batcher(compute, budget=2)
    (failed,) = submit(made, [-1, *range(50)])
    assert isinstance(failed, ValueError)
    assert made.waiting == 0
    assert len(compute.batches) <= 2


def test_a_function_that_loses_rows_is_an_error():
    (failed,) = submit(batcher(lambda items: items[1:]), [1, 2])
    assert isinstance(failed, RuntimeError)


def test_who_has_gone_is_not_computed():
    compute = Doubling()
    compute.open.clear()

    async def leave():
        made = batcher(compute, budget=1)
        first, gone = (asyncio.create_task(made.submit([item], [1])) for item in (1, 2))
        await asyncio.sleep(0.05)
        gone.cancel()
        compute.open.set()
        assert await first == [2]
        await made.finish()
        return made.waiting

    assert asyncio.run(leave()) == 0
    assert compute.batches == [[1]]


def test_finish_answers_what_waits():
    compute = Doubling()
    compute.open.clear()

    async def stop():
        made = batcher(compute, budget=1)
        jobs = [asyncio.create_task(made.submit([item], [1])) for item in range(5)]
        await asyncio.sleep(0.01)
        compute.open.set()
        await made.finish()
        return await asyncio.gather(*jobs)

    assert asyncio.run(stop()) == [[0], [2], [4], [6], [8]]
