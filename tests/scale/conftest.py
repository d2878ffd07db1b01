"""A recipe of two views, all of it affine: what shards give can be compared to the last digits."""

import pytest

from bertflow import Part, Pooled, TokenTable, Whitening
from bertflow.recipes import TABLE, Recipe


@pytest.fixture
def two_parts(monkeypatch):
    """Its name."""

    def make(view, k):
        words = Part(Pooled("mean", words_only=True), Whitening(alpha=0.5), weight=None)
        return [Part(TokenTable(48), Whitening(12, shrinkage=0.5), weight=None), words]

    monkeypatch.setitem(TABLE, "two", Recipe("two", "for tests", make, brings_views=True))
    return "two"
