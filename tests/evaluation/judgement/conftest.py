"""A made-up language whose encoders are known: one even, one in a cone."""

import zlib

import numpy as np
import pytest

from bertflow.evaluation import PairSet, PairTask

DIM = 24


class Words:
    """The mean of random word vectors, plus what all sentences have in common."""

    def __init__(self, common: float) -> None:
        self.name, self.dim, self.fingerprint, self.common = f"words {common:g}", DIM, f"words {common:g}", common

    def encode(self, sentences, *, show_progress_bar=False):
        return np.array([self._vector(text) for text in sentences], dtype=np.float32)

    def _vector(self, text):
        words = [np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIM) for word in text.split()]
        # a direction that every sentence has more or less of, whatever it says: it swamps the cosine
        return np.mean(words, axis=0) + self.common * (1 + len(text) % 7) * np.eye(DIM)[0]

    def describe(self):
        return {"name": self.name}


@pytest.fixture(scope="session")
def crowded():
    return Words(0.5)


@pytest.fixture(scope="session")
def even():
    return Words(0.0)


@pytest.fixture(scope="session")
def corpus():
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(300)]
    return [" ".join(rng.choice(words, size=rng.integers(6, 12), replace=False)) for _ in range(400)]


@pytest.fixture(scope="session")
def pairs(corpus):
    """Sentences and copies with so many words changed as the score is low."""
    rng = np.random.default_rng(2)
    first, second, gold = corpus[:200], [], []
    for text, other in zip(first, corpus[200:], strict=True):
        words, score = text.split(), int(rng.integers(6))
        kept = round(len(words) * score / 5)
        second.append(" ".join([*words[:kept], *other.split()[kept:]]) or other)
        gold.append(float(score))
    return PairTask("own", "spearman", {"all": PairSet(first, second, np.array(gold))}, [])
