"""What the page's script draws, as JSON that is small and safe inside HTML."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.geometry import BeforeAfter
from bertflow.geometry.association import Vector
from bertflow.report.cosines import WIDER, Cosines, CosineSpread
from bertflow.report.findings import Findings
from bertflow.report.maps import SpaceMap
from bertflow.report.pairs import LexicalView

TEXT_BYTES = 3_000_000  # for the labels of one map: with the script and the coordinates, the page stays below 5 MB
SPECTRUM_POINTS = 400
_STEPS = 4000  # of a map's width: finer than its pixels even when zoomed in


def page_data(findings: Findings) -> dict[str, Any]:
    """Return all that is drawn, as plain values."""
    found = findings.analysis
    return {
        "sentences": _map(findings.sentences),
        "words": None if findings.words is None else _map(findings.words.map),
        "cosines": _cosines(findings.cosines),
        "spectrum": {
            "before": spectrum_points(found.isotropy.before.spectrum),
            "after": spectrum_points(found.isotropy.after.spectrum),
            "noise": spectrum_points(found.gaussian.spectrum),
        },
        "lexical": None if findings.lexical is None else _lexical(findings.lexical),
    }


def safe_json(value: Any) -> str:
    """Write JSON that no HTML or JavaScript parser can take for anything else.

    ``</script>`` and ``<!--`` would end or change a script element, and U+2028 a line of old JavaScript.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def spectrum_points(spectrum: tuple[float, ...]) -> list[tuple[int, float]]:
    """Return (axis, deviation) of singular values divided by their root mean square; those that are zero are left out."""
    values = np.asarray(spectrum)
    relative = values / math.sqrt(float((values**2).mean()))
    shown = np.unique(np.linspace(0, len(values) - 1, SPECTRUM_POINTS).astype(int))
    return [(int(i) + 1, float(f"{relative[i]:.4g}")) for i in shown if relative[i] > 1e-6]


def shortened(labels: list[str], budget: int = TEXT_BYTES) -> list[str]:
    """Cut the longest texts, all at one length, so that they fit into that many bytes of JSON."""
    sizes = np.array([len(safe_json(text).encode("utf-8", "replace")) for text in labels])
    lengths = np.array([len(text) for text in labels])
    width = sizes / np.maximum(lengths, 1)  # bytes a character
    limit = int(lengths.max(initial=0))
    while limit > 20 and float((np.minimum(lengths, limit) * width).sum()) > budget:
        limit = limit * 9 // 10
    return [text if len(text) <= limit else text[: limit - 1] + "…" for text in labels]


def _map(found: SpaceMap) -> dict[str, Any]:
    return {
        "labels": shortened(found.labels),
        "before": _coordinates(found.before),
        "after": _coordinates(found.after),
        "levels": found.levels.tolist(),
        "values": [_rounded(value, 4) for value in found.values],
    }


def _coordinates(points: Matrix) -> list[list[float]]:
    """Return x and y as two lists, rounded to what can be seen."""
    span = float(np.abs(points).max()) or 1.0
    digits = max(0, math.ceil(math.log10(_STEPS / span)))
    return [[_plain(value) for value in column.round(digits).tolist()] for column in points.T]


def _cosines(found: Cosines) -> dict[str, Any]:
    def side(one: CosineSpread) -> dict[str, Any]:
        labelled = None if one.labelled_shares is None else _shares(one.labelled_shares)
        best = None if one.best is None else _rounded(one.best.cosine, 4)
        return {
            "shares": _shares(one.shares),
            "labelled": labelled,
            "similar": _rounded(one.similar, 4),
            "very": _rounded(one.very_similar, 4),
            "best": best,
        }

    return {
        "edges": [_rounded(edge, 6) for edge in found.edges],
        "wider": WIDER,
        "before": side(found.spread.before),
        "after": side(found.spread.after),
    }


def _lexical(found: LexicalView) -> dict[str, Any]:
    def side(values: Vector) -> list[float]:
        return [_plain(value) for value in values.round(4).tolist()]

    cosine: BeforeAfter[Vector] = found.pairs.cosine
    return {
        "edits": found.edits.tolist(),
        "first": shortened(found.pairs.first, TEXT_BYTES // 10),
        "second": shortened(found.pairs.second, TEXT_BYTES // 10),
        "before": side(cosine.before),
        "after": side(cosine.after),
        "near": found.summary.before.near,
    }


def _shares(values: Vector) -> list[float]:
    return [_plain(value) for value in values.round(6).tolist()]


def _rounded(value: float, digits: int) -> float | None:
    """Round to so many significant digits; infinity is no JSON."""
    return _plain(float(f"{value:.{digits}g}")) if math.isfinite(value) else None


def _plain(value: float) -> float:
    """3 instead of 3.0, which is one third shorter."""
    return int(value) if value == int(value) else value
