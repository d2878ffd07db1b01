"""The report's pictures as PNG and SVG, for papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bertflow.paper.figures import drawing
from bertflow.report.cosines import WIDER
from bertflow.report.findings import Findings
from bertflow.report.maps import SpaceMap
from bertflow.report.payload import spectrum_points

SIDES = ("before", "after")
COLOURS = {"before": "#d55e00", "after": "#0072b2"}  # Okabe and Ito: told apart in every kind of colour vision
GREY = "#7f7f7f"
Painter: TypeAlias = Callable[[Any, Findings], None]


def draw(findings: Findings, folder: str | Path) -> list[Path]:
    """Write every picture that there is something to show of, as PNG and SVG; return the files."""
    painters: dict[str, tuple[Painter, tuple[float, float]]] = {
        "sentences": (_sentences, (10, 4.8)),
        "similar": (_similar, (10, 3.4)),
        "spectrum": (_spectrum, (6.4, 3.6)),
    }
    if findings.words is not None:
        painters["words"] = (_words, (10, 4.8))
    if findings.lexical is not None:
        painters["lexical"] = (_lexical, (10, 3.8))
    written = []
    for name, (paint, size) in painters.items():
        for suffix in (".png", ".svg"):
            path = Path(folder) / f"{name}{suffix}"
            with drawing(path, size) as figure:
                paint(figure, findings)
            written.append(path)
    return written


def _sentences(figure: Any, findings: Findings) -> None:
    _map(figure, findings.sentences, "Sentences")


def _words(figure: Any, findings: Findings) -> None:
    if findings.words is not None:
        _map(figure, findings.words.map, "Words")


def _map(figure: Any, points: SpaceMap, what: str) -> None:
    order = np.argsort(points.levels, kind="stable")
    for axes, side in zip(figure.subplots(1, 2), SIDES, strict=True):
        x, y = getattr(points, side)[order].T
        dots = axes.scatter(x, y, c=points.levels[order], cmap="viridis", s=4, linewidths=0, rasterized=True)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.axvline(0, color=GREY, linewidth=0.6)
        axes.set(title=f"{what} {side}", xlabel="first singular direction", ylabel="second singular direction")
        axes.set_aspect("equal", adjustable="datalim")
    bar = figure.colorbar(dots, ax=figure.axes, ticks=[0, points.levels.max()], label=points.shade)
    bar.ax.set_yticklabels([points.low, points.high])


def _similar(figure: Any, findings: Findings) -> None:
    found = findings.cosines
    for axes, side in zip(figure.subplots(1, 2, sharex=True, sharey=True), SIDES, strict=True):
        one = getattr(found.spread, side)
        axes.stairs(100 * one.shares, found.edges, fill=True, color=COLOURS[side], alpha=0.4, label="random pairs")
        if one.labelled_shares is not None:
            shares = 100 * one.labelled_shares / WIDER
            axes.stairs(shares, found.edges[::WIDER], color="black", label=f"scored {found.alike_from:g} or more")
        for value, style, name in ((one.similar, "--", "1 %"), (one.very_similar, ":", "0.1 %")):
            axes.axvline(value, color="black", linestyle=style, linewidth=1, label=f"{name} above {value:.2f}")
        axes.set(title=side.capitalize(), xlabel="cosine", ylabel="% of pairs")
        axes.legend(fontsize="small")


def _spectrum(figure: Any, findings: Findings) -> None:
    axes, found = figure.add_subplot(), findings.analysis
    curves = (
        ("before", found.isotropy.before, COLOURS["before"], "-"),
        ("after", found.isotropy.after, COLOURS["after"], "-"),
        ("Gaussian noise", found.gaussian, GREY, ":"),
    )
    for name, one, colour, style in curves:
        axes.plot(*zip(*spectrum_points(one.spectrum), strict=True), color=colour, linestyle=style, label=name)
    axes.set(xlabel="principal axis, widest first", ylabel="relative deviation", yscale="log", title="Spectrum")
    axes.legend()


def _lexical(figure: Any, findings: Findings) -> None:
    view = findings.lexical
    if view is None:
        return
    aside = np.random.default_rng(0).uniform(-0.3, 0.3, size=len(view.edits))  # whole numbers hide each other
    for axes, side in zip(figure.subplots(1, 2, sharex=True, sharey=True), SIDES, strict=True):
        summary, cosines = getattr(view.summary, side), getattr(view.pairs.cosine, side)
        near = view.edits <= summary.near
        for chosen, colour, name in ((~near, GREY, "further"), (near, COLOURS[side], f"at most {summary.near} edits")):
            axes.scatter((view.edits + aside)[chosen], cosines[chosen], s=7, c=colour, alpha=0.5, linewidths=0,
                         label=name, rasterized=True)  # fmt: skip
        known = "" if summary.correlation is None else f": Spearman ×100 {summary.correlation:.1f}"
        axes.set(title=side.capitalize() + known, xlabel="edit distance (words)", ylabel="cosine")
        axes.legend(fontsize="small")
