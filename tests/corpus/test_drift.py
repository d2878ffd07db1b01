"""Drift: a p-value that is right where nothing changed, and what differs where something did."""

import numpy as np
import pytest

from bertflow.corpus import find_drift
from bertflow.corpus.drift import chord_distances, energy_test
from bertflow.errors import InputError


def units(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Kinds:
    """A model: a text's first word is its kind, its last a number."""

    def __init__(self, seed=0):
        self.seed = seed

    def encode(self, texts):
        kinds = {"common": 0.0, "old": 2.0, "new": -2.0}
        rows = []
        for text in texts:
            kind, number = text.split()[0], int(text.split()[-1])
            row = np.random.default_rng(number).standard_normal(8)
            row[self.seed] += kinds[kind]
            rows.append(row)
        return np.stack(rows)


def test_the_p_value_is_right_where_nothing_changed():
    """Under no change it is uniform: about 5 % of 300 trials are below 0.05, about half below 0.5."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(300):
        distances = chord_distances(units(rng.standard_normal((60, 6)) + 0.5))
        values.append(energy_test(distances, 25, 99, rng)[2])
    values = np.array(values)
    assert 0.02 <= (values <= 0.05).mean() <= 0.085
    assert 0.42 <= (values <= 0.5).mean() <= 0.58


def test_energy_is_what_its_definition_says():
    rng = np.random.default_rng(0)
    x, y = units(rng.standard_normal((20, 4))), units(rng.standard_normal((30, 4)) + 1)
    between = lambda a, b: np.linalg.norm(a[:, None] - b[None], axis=2).mean()  # noqa: E731
    expected = 2 * between(x, y) - between(x, x) - between(y, y)
    energy, effect, p_value = energy_test(chord_distances(np.concatenate([x, y])), 20, 199, rng)
    assert energy == pytest.approx(expected, rel=1e-3)
    assert effect == pytest.approx(expected / (2 * between(x, y)), rel=1e-3)
    assert p_value == 1 / 200


def test_what_changed_is_told():
    old = [f"common words {i}" for i in range(60)] + [f"old branch {i}" for i in range(60, 90)]
    new = [f"common words {i}" for i in range(100, 160)] + [f"new app {i}" for i in range(160, 190)]
    found = find_drift(old, new, Kinds(), permutations=199, top=5)
    assert found.p_value == 1 / 200
    assert 0 < found.effect < 1
    assert sum(text.text.startswith("old") for text in found.old_texts) >= 4
    assert sum(text.text.startswith("new") for text in found.new_texts) >= 4
    assert all(old[text.row] == text.text for text in found.old_texts)
    assert found.old_words[0][0] in ("old", "branch")
    assert found.new_words[0][0] in ("new", "app")
    assert found.refit is None
    assert found == find_drift(old, new, Kinds(), permutations=199, top=5)


def test_what_a_refit_would_change():
    old, new = ([f"common {i}" for i in range(start, start + 40)] for start in (0, 40))
    same = find_drift(old, new, Kinds(), refit=lambda texts: Kinds(), permutations=9).refit
    assert same.neighbours_kept == 1
    assert same.cosines == pytest.approx(1)
    seeds = iter((0, 1))

    class Turned(Kinds):
        def encode(self, texts):
            return super().encode(texts) * np.where(np.arange(8) == self.seed, 5, 1)

    other = find_drift(old, new, Kinds(), refit=lambda texts: Turned(next(seeds)), permutations=9).refit
    assert other.neighbours_kept < 0.9
    assert other.cosines < 0.9


def test_of_many_texts_some_are_drawn():
    old, new = ([f"common {i}" for i in range(start, start + 50)] for start in (0, 50))
    found = find_drift(old, new, Kinds(), most=30, permutations=9)
    assert (found.old, found.new) == (30, 30)


def test_unfit_input_is_one_sentence():
    texts = [f"common {i}" for i in range(30)]
    for options in ({"permutations": 0}, {"most": 1}):
        with pytest.raises(InputError, match="were wanted"):
            find_drift(texts, texts, Kinds(), **options)
    with pytest.raises(InputError, match="20 texts or more"):
        find_drift(texts[:3], texts, Kinds())
