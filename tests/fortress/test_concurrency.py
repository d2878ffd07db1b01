"""One model, many at once: threads, forked and spawned processes and asyncio give the vectors that one alone gives."""

import asyncio
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from bertflow import BertFlow

TEXTS = [f"the {animal} {verb} on a mat" for animal in ("cat", "dog", "bird") for verb in ("sat", "runs", "sings")]
_loaded = {}


@pytest.fixture(scope="module", params=["whitening", "flow", "best"])
def saved(request, tiny_bert, sentences, tmp_path_factory):
    """A folder, its model, and the vectors of one thread."""
    model = BertFlow.fit(sentences, tiny_bert, recipe=request.param, device="cpu")
    folder = model.save_pretrained(tmp_path_factory.mktemp("many") / "model")
    return folder, model, model.encode(TEXTS)


def _encode_loaded(texts):
    return _loaded["model"].encode(texts)


def _load_and_encode(folder, texts):
    return BertFlow.from_pretrained(folder, device="cpu").encode(texts)


def test_threads(saved):
    _, model, expected = saved
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(lambda _: model.encode(TEXTS), range(64)):
            np.testing.assert_allclose(vectors, expected, atol=1e-4)
        singles = list(pool.map(model.encode, TEXTS * 8))
    np.testing.assert_allclose(singles, np.tile(expected, (8, 1)), atol=1e-4)


def test_asyncio(saved):
    _, model, expected = saved

    async def ask_many():
        return await asyncio.gather(*(asyncio.to_thread(model.encode, TEXTS) for _ in range(16)))

    for vectors in asyncio.run(ask_many()):
        np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_forked_after_loading(saved):
    """The model is not sent: the forked processes have it."""
    _, _loaded["model"], expected = saved
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            for vectors in pool.map(_encode_loaded, [TEXTS] * 4):
                np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_spawned(saved):
    folder, model, expected = saved
    if model.recipe != "best":
        pytest.skip("a fresh interpreter takes seconds to import; one recipe will do")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        vectors = pool.submit(_load_and_encode, str(folder), TEXTS).result(timeout=120)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
