"""The paper's figures for any encoder: word embeddings by frequency (1), similarity against edit distance (2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.data import MINI
from bertflow.errors import InputError, require
from bertflow.evaluation.scores import Vector
from bertflow.geometry.lexical import NEAR, lexical_correlation
from bertflow.paper.table1 import word_embeddings
from bertflow.paper.table6 import LexicalMeasurement, measure
from bertflow.storage.atomic import atomic_file

# matplotlib writes the date unless told otherwise; a figure of the same numbers should be the same file
_METADATA: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_GREY, _ORANGE = "#7f7f7f", "#d55e00"  # vermilion of Okabe and Ito: told from grey in every kind of colour vision


def figure1(
    encoder: Any = MINI,
    output: str | Path = "figure1.png",
    counts: str | Path | None = None,
    *,
    data: str | Path | None = None,
    words: int = 10_000,
) -> Path:
    """Draw the input embeddings of an encoder's words on their two main singular directions, coloured by frequency.

    Args:
        encoder: A name, a folder, a SentenceTransformer or an ``Encoder``.
        output: A ``.png``, ``.svg`` or ``.pdf`` file; its folder is made if need be.
        counts: A file of ``word count`` lines; see ``bertflow.paper.table1.run``.
        data: The folder of data sets; see ``bertflow.evaluation.find_data``.
        words: Draw at most this many, the most frequent.

    Returns:
        The file.
    """
    path = _checked(output)
    found = word_embeddings(encoder, counts, data)
    points = main_directions(found.vectors[:words])
    with drawing(path, (7.2, 4.6)) as figure:
        axes = figure.add_subplot()
        # frequent words are few: drawn last, on top
        order = np.arange(len(points))[::-1]
        dots = axes.scatter(*points[order].T, c=np.log10(order + 1), cmap="viridis", s=5, linewidths=0, rasterized=True)
        axes.plot(0, 0, marker="+", color="black", markersize=10, linestyle="none", label="origin")
        axes.legend(loc="best")
        axes.set(
            title=f"Word embeddings of {Path(found.encoder).name}: {len(points):,} words by frequency",
            xlabel="first singular direction",
            ylabel="second singular direction",
        )
        axes.set_aspect("equal", adjustable="datalim")
        figure.colorbar(dots, ax=axes, label="log₁₀ of frequency rank (dark: frequent)")
    return path


def figure2(
    encoder: Any = MINI,
    output: str | Path = "figure2.png",
    pooling: str | None = None,
    **options: Any,
) -> Path:
    """Draw similarity against edit distance on STS-B dev: gold, raw and after the flow.

    Args:
        encoder: As in ``bertflow.paper.table6.measure``.
        output: A ``.png``, ``.svg`` or ``.pdf`` file; its folder is made if need be.
        pooling: For a name or folder.
        options: ``data``, ``unit``, ``seed`` and ``preset`` of ``measure``.

    Returns:
        The file.
    """
    path = _checked(output)
    found = measure(encoder, pooling, **options)
    with drawing(path, (11, 4.4)) as figure:
        _draw_panels(figure, found)
    return path


def main_directions(vectors: Matrix) -> Matrix:
    """Return the rows' coordinates on the two largest singular directions (n, 2), uncentred.

    From the (d, d) matrix of products: as exact as a plot needs, and n may be large.
    """
    x = vectors.astype(np.float64)
    if x.shape[1] < 2:
        raise InputError(f"The word embeddings have {x.shape[1]} dimension(s); a drawing needs two.")
    _, directions = np.linalg.eigh(x.T @ x)
    main = directions[:, :-3:-1]
    # a singular vector has no sign of its own: fix it by its largest entry, or two machines draw mirror images
    return x @ (main * np.sign(main[np.abs(main).argmax(axis=0), [0, 1]]))


def _draw_panels(figure: Any, found: LexicalMeasurement) -> None:
    name = Path(str(found.settings["encoder"])).name
    panels = (
        ("People (gold)", "gold score", found.gold),
        (f"{name}, raw", "cosine", found.raw),
        (f"{name} with flow", "cosine", found.flow),
    )
    near = found.distances <= NEAR
    for axes, (title, label, values) in zip(figure.subplots(1, 3, sharex=True), panels, strict=True):
        for chosen, colour, legend, size in (
            (~near, _GREY, f"distance > {NEAR}", 6),
            (near, _ORANGE, f"distance ≤ {NEAR}", 9),
        ):
            axes.scatter(
                _spread(found.distances)[chosen], values[chosen], s=size, c=colour, alpha=0.5, linewidths=0,
                label=legend, rasterized=True,
            )  # fmt: skip
        axes.set(
            title=f"{title}\nSpearman ×100: {lexical_correlation(values, found.distances):.1f}",
            xlabel=f"edit distance ({found.settings['unit']})",
            ylabel=label,
        )
    handles, legends = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, legends, loc="outside lower center", ncols=2, markerscale=2)
    figure.suptitle("Similarity against edit distance on STS-B dev")


def _spread(distances: Any) -> Vector:
    """Move whole numbers a little sideways, the same way each time, so that points do not hide each other."""
    return distances + np.random.default_rng(0).uniform(-0.3, 0.3, size=len(distances))


def _checked(output: str | Path) -> Path:
    """Refuse an unknown ending before minutes of computing."""
    path = Path(output)
    if path.suffix.lower() not in _METADATA:
        raise InputError(f"A figure ends in {', '.join(_METADATA)}; {str(output)!r} does not. Choose one of them.")
    require("matplotlib", extra="figures")
    return path


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Yield a figure that is written to ``path`` when the block ends well; no window, no pyplot, no lasting setting."""
    matplotlib = require("matplotlib", extra="figures")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's style would change the drawing; rc_context brings it back
        matplotlib.rcParams["svg.hashsalt"] = "bertflow"  # random ids otherwise
        figure = require("matplotlib.figure", extra="figures").Figure(figsize=size, layout="constrained")
        require("matplotlib.backends.backend_agg", extra="figures").FigureCanvasAgg(figure)
        yield figure
        with atomic_file(path) as temporary:
            suffix = path.suffix.lower()
            figure.savefig(temporary, format=suffix[1:], dpi=150, metadata=_METADATA[suffix])
