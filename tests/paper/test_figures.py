import sys

import numpy as np
import pytest

from bertflow import Encoder
from bertflow.errors import InputError, MissingExtraError
from bertflow.paper import figures
from bertflow.paper.table6 import LexicalMeasurement

matplotlib = pytest.importorskip("matplotlib", reason="figures need the extra 'figures'")
BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture
def measured(monkeypatch):
    """Made-up similarities in place of minutes of computing."""
    rng = np.random.default_rng(0)
    distances = rng.integers(0, 20, size=60)
    gold, noise = -distances + rng.normal(size=60), rng.normal(size=(2, 60))
    found = LexicalMeasurement(distances, gold, gold + noise[0], gold + noise[1], {"encoder": "tiny", "unit": "words"})
    monkeypatch.setattr(figures, "measure", lambda *args, **options: found)


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("the 90\na 80\ncat 70\ndog 60\nsat 50\non 40\nmat 30\n")
    return path


@pytest.mark.parametrize("suffix", BEGINNINGS)
def test_one_result_is_one_file_in_each_format(measured, tmp_path, suffix):
    one, two = (figures.figure2(output=tmp_path / "new" / f"{name}{suffix}") for name in "ab")
    assert one.read_bytes().startswith(BEGINNINGS[suffix])
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in one.parent.iterdir()) == [f"a{suffix}", f"b{suffix}"]


def test_words_are_drawn(tiny_bert, counts, tmp_path):
    path = figures.figure1(Encoder(tiny_bert, device="cpu"), tmp_path / "words.svg", counts)
    text = path.read_text(encoding="utf-8")
    assert "7 words by frequency" in text
    assert "singular direction" in text


def test_settings_and_backend_of_the_user_stay(measured, tmp_path):
    pyplot_before = "matplotlib.pyplot" in sys.modules
    with matplotlib.rc_context({"lines.linewidth": 7}):
        matplotlib.rcParams["backend"] = "svg"
        try:
            figures.figure2(output=tmp_path / "a.png")
            assert matplotlib.rcParams["backend"] == "svg"
        finally:
            matplotlib.rcParams["backend"] = "agg"
        assert matplotlib.rcParams["lines.linewidth"] == 7
    assert ("matplotlib.pyplot" in sys.modules) == pyplot_before


def test_an_unknown_ending_is_refused_before_anything_is_computed(tmp_path):
    for draw in (figures.figure1, figures.figure2):
        with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.pdf; .*a\.gif"):
            draw("no such model", tmp_path / "a.gif")


def test_the_absent_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"bertflow\[figures\]"):
        figures.figure2(output=tmp_path / "a.png")


def test_main_directions_are_those_of_the_svd():
    x = np.random.default_rng(0).normal(size=(200, 5)) * [1, 9, 2, 5, 1] + [0, 3, 0, 0, 0]
    left, values, _ = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(np.abs(figures.main_directions(x)), np.abs(left[:, :2] * values[:2]), atol=1e-8)
    with pytest.raises(InputError, match="needs two"):
        figures.main_directions(x[:, :1])
