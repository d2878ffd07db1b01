"""The figures for papers."""

from dataclasses import replace

import pytest

pytest.importorskip("matplotlib", reason="figures need pip install 'bertflow[figures]'")

from bertflow.report.drawings import draw


def test_every_picture_as_png_and_svg(findings, tmp_path):
    files = draw(findings, tmp_path / "one")
    assert sorted(file.name for file in files) == sorted(
        f"{name}.{kind}" for name in ("sentences", "words", "similar", "lexical", "spectrum") for kind in ("png", "svg")
    )
    for file in files:
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
        assert len(content) > 5000
    fewer = replace(findings, words=None, lexical=None)
    for file in draw(fewer, tmp_path / "two"):
        assert file.read_bytes() == (tmp_path / "one" / file.name).read_bytes(), "the same twice"
