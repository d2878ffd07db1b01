"""A model and an index that need no language model, and a server of them on a free port."""

import threading
import time
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs pip install 'bertflow[serve]'")
pytest.importorskip("prometheus_client", reason="needs pip install 'bertflow[serve]'")

from bertflow.arrays import unit_rows
from bertflow.serving import create_app
from bertflow.serving.running import bind, hosts_for, listen, server


class Words:
    """A text's vector is the sum of its words', which are random but the same each time."""

    def __init__(self, dim=8, ordered=True, seconds=0.0, broken=""):
        self.dim, self.seconds, self.broken = dim, seconds, broken
        self.parts = [SimpleNamespace(calibrator=SimpleNamespace(method="pca" if ordered else "zca"))]
        self.batches = []

    def encode(self, sentences):
        self.batches.append(list(sentences))
        time.sleep(self.seconds)
        if self.broken and any(self.broken in text for text in sentences):
            raise RuntimeError(f"a secret of the machine: {self.broken}")
        return np.stack([self._vector(text) for text in sentences])

    def _vector(self, text):
        rows = [np.random.default_rng(zlib.crc32(word.encode())).normal(size=self.dim) for word in text.split() or [""]]
        return np.sum(rows, axis=0).astype(np.float32)


@dataclass
class Hit:
    """As ``bertflow.integrations.faiss.Hit``."""

    rank: int
    cosine: float
    text: str
    row: int
    copies: int


class Lines:
    """A search index over a few lines."""

    def __init__(self, model, lines):
        self.model, self.lines = model, lines

    def __len__(self):
        return len(self.lines)

    def search(self, queries, k):
        cosines = unit_rows(self.model.encode(queries)) @ unit_rows(self.model.encode(self.lines)).T
        best = np.argsort(-cosines, axis=1)[:, :k]
        return SimpleNamespace(
            hits=[
                [Hit(rank, float(row[i]), self.lines[i], int(i), 1) for rank, i in enumerate(found, 1)]
                for row, found in zip(cosines, best, strict=True)
            ]
        )


LINES = [
    "a man repairs bicycles",
    "bread from the oven",
    "the parliament votes",
    "<img src=x onerror='window.hacked=1'>",
]


@pytest.fixture
def words():
    return Words()


@pytest.fixture
def client(words):
    """A client in this process, of a service with one model and one index."""
    from starlette.testclient import TestClient

    with TestClient(create_app({"words": words}, {"lines": Lines(words, LINES)}), base_url="http://localhost") as made:
        yield made


@contextmanager
def running(app):
    """Run an application in a thread, on a free port of this machine; yields its address."""
    with bind("127.0.0.1", 0) as taken:
        made = server(app)
        thread = threading.Thread(target=made.run, kwargs={"sockets": [taken]}, daemon=True)
        place = listen(taken)
        thread.start()
        while not made.started and thread.is_alive():
            time.sleep(0.005)
        try:
            yield place
        finally:
            made.should_exit = True
            thread.join(10)


@pytest.fixture(scope="session")
def address():
    """A running service with an ordered model, one that is not, and an index."""
    model = Words()
    app = create_app(
        {"words": model, "loose": Words(ordered=False)},
        {"lines": Lines(model, LINES)},
        hosts=hosts_for("127.0.0.1", has_keys=False),
    )
    with running(app) as place:
        yield place
