"""The first page's picture: cosines of unrelated and of related texts, before and after; docs/before-after-{light,dark}.svg.

python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from bertflow import BertFlow
from bertflow.arrays import cosine_of_pairs
from bertflow.data import sample_pairs, sample_sentences

HERE = Path(__file__).parent
THEMES = {"light": ("#1f2328", "#8c959f", "#0969da"), "dark": ("#e6edf3", "#6e7681", "#58a6ff")}
RELATED = 4  # of 5: the same in other words


def main() -> None:
    """Fit on the shipped sentences and draw."""
    corpus = sample_sentences()
    pairs = [pair for pair in sample_pairs() if pair.score >= RELATED]
    order = np.random.default_rng(0).permutation(len(corpus))[:4000]
    found = {}
    for title, recipe in {"raw": "raw", "after bertflow": "best"}.items():
        model = BertFlow.fit(corpus, encoder="mini", recipe=recipe)
        vectors = model.encode([corpus[i] for i in order])
        first, second = (model.encode([getattr(pair, side) for pair in pairs]) for side in ("sentence1", "sentence2"))
        found[title] = cosine_of_pairs(vectors[::2], vectors[1::2]), cosine_of_pairs(first, second)
    for theme, colours in THEMES.items():
        draw(found, HERE / f"before-after-{theme}.svg", *colours)


def draw(found: dict[str, tuple[np.ndarray, np.ndarray]], path: Path, ink: str, grey: str, blue: str) -> None:
    """Draw two histograms a space, above each other."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "bertflow", "font.family": "sans-serif", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(7.2, 3.2), sharex=True)
    bins = np.linspace(-0.4, 1, 71)
    for axis, (title, (unrelated, related)) in zip(axes, found.items(), strict=True):
        for cosines, colour in ((unrelated, grey), (related, blue)):
            axis.hist(cosines, bins, density=True, color=colour, alpha=0.75)
        text = f"{title}: unrelated {round(unrelated.mean(), 2) + 0:.2f}, same meaning {related.mean():.2f}"
        axis.set_title(text, loc="left", fontsize=10, color=ink)
        axis.set_yticks([])
        axis.tick_params(colors=ink, labelsize=8)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.spines["bottom"].set_color(grey)
    axes[1].set_xlabel("cosine of two texts (grey: unrelated, blue: the same in other words)", fontsize=9, color=ink)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
