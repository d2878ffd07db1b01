"""An analysis as tables of text, each with a sentence on how to read it; for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bertflow.geometry.decomposition import LogitShares
from bertflow.geometry.isotropy import Isotropy
from bertflow.geometry.lexical import LexicalSummary
from bertflow.geometry.masked import LogitReport
from bertflow.geometry.measures import Analysis, BeforeAfter, PairGeometry
from bertflow.geometry.sphere import uniform_value

NOTHING = "–"


@dataclass(frozen=True)
class ReadableTable:
    """A table of text.

    Args:
        title: What it shows.
        columns: Names of the columns.
        rows: The cells, one tuple a row.
        reading: How to read it.
        text_last: Whether the last column is text.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    reading: str
    text_last: bool = False


def readable_tables(analysis: Analysis) -> list[ReadableTable]:
    """Return the tables of an analysis, in reading order; parts that were not measured are left out."""
    return [
        *_isotropy(analysis),
        *_dimensions(analysis),
        *_normality(analysis),
        *_words(analysis),
        *_frequency(analysis),
        *(_logits(analysis.logits) if analysis.logits else ()),
        *_density(analysis),
        *(_pairs(analysis.pairs) if analysis.pairs else ()),
    ]


def _isotropy(analysis: Analysis) -> Iterator[ReadableTable]:
    spaces = (analysis.isotropy.before, analysis.isotropy.after, analysis.gaussian)
    row, d = partial(_row, spaces), analysis.gaussian.dim
    yield ReadableTable(
        "Isotropy: are all directions used equally?",
        ("", "before", "after", "Gaussian noise", "perfect"),
        (
            ("mean cosine of random sentences", *map(_cosine, spaces), "0"),
            row("share of the common direction", "mean_share", "0"),
            row("effective rank", "effective_rank", str(d), 1),
            row("IsoScore", "iso_score", "1"),
            row("partition ratio", "partition_ratio", "1"),
            row("uniformity (lower is better)", "uniformity", f"{uniform_value(d):.2f}", 2),
            row(f"hubness (k = {spaces[1].neighbours})", "hubness", "0", 2),
        ),
        "After calibration the figures should be close to those of Gaussian noise with as many rows and dimensions. A mean "
        "cosine far above 0 means that any two sentences look alike; ± is its standard error.",
    )


def _cosine(space: Isotropy) -> str:
    return f"{_number(space.mean_cosine, 3)} ± {_number(space.mean_cosine_error, 3)}"


def _dimensions(analysis: Analysis) -> Iterator[ReadableTable]:
    rows = []
    for when, found in (("before", analysis.dimensions.before), ("after", analysis.dimensions.after)):
        rows += [
            (when if i == 0 else "", str(one.index), f"{one.mean:.2f}", f"{one.deviation:.2f}", f"{100 * one.share:.1f} %",
             f"{one.share * found.mean_cosine:.4f}")
            for i, one in enumerate(found.top)
        ]  # fmt: skip
    before = analysis.dimensions.before
    yield ReadableTable(
        "Rogue dimensions: which ones make all sentences look alike?",
        ("", "dimension", "mean", "deviation", "share of mean cosine", "part of mean cosine"),
        tuple(rows),
        f"Before, {before.half} of {before.dim} dimensions make half of the mean cosine, and {len(before.outliers)} are more "
        f"than {before.threshold:g} of their deviations from zero. A share matters only where the mean cosine is not near 0.",
    )


def _normality(analysis: Analysis) -> Iterator[ReadableTable]:
    after = analysis.normality.after
    row = partial(_row, (analysis.normality.before, after))
    yield ReadableTable(
        "Normality: are the vectors a standard Gaussian?",
        ("", "before", "after", "N(0, I)"),
        (
            row("mean |skewness| of the dimensions", "skewness", "0"),
            row("mean excess kurtosis", "kurtosis", "0"),
            row(f"dimensions rejected at {after.level:g}", "rejected", f"{after.level:g}"),
            row("… corrected for their number", "rejected_together", "0"),
            row("mean squared length / dimensions", "squared_radius", "1"),
            row("gap of squared length to χ²", "radius_gap", "0"),
            row("Mardia's kurtosis, relative", "mardia", "1"),
        ),
        "With thousands of sentences a test rejects any real space: skewness and kurtosis say how far it is from a Gaussian. "
        "Mardia's kurtosis is the same after every linear map, so no whitening can bring it to 1.",
    )


def _words(analysis: Analysis) -> Iterator[ReadableTable]:
    found = analysis.words
    if found is None:
        return
    figures = [("mean ℓ2 norm", found.norm)]
    figures += [(f"mean {k}-NN ℓ2 distance", values) for k, values in found.distance.items()]
    figures += [(f"mean {k}-NN dot product", values) for k, values in found.dot.items()]
    yield ReadableTable(
        f"Words: input embeddings by frequency rank (counts: {analysis.settings['counts']})",
        ("", *(f"[{start}, {stop})" for start, stop in found.bins)),
        (
            ("words", *map(str, found.words)),
            *((name, *(_number(value) for value in values)) for name, values in figures),
        ),
        "The paper's Table 1. In BERT all rows grow from left to right: frequent words are near the origin and close together, "
        "rare ones are far from it and sparse.",
    )


def _frequency(analysis: Analysis) -> Iterator[ReadableTable]:
    if analysis.frequency is None:
        return
    rows = _by_group(
        analysis.frequency,
        lambda a, b: (f"{v:.2f}" for v in (a.log_frequency, a.norm, b.norm, a.distance, b.distance)),
    )
    before, after = analysis.frequency.before, analysis.frequency.after
    correlations = [before.norm_correlation, after.norm_correlation]
    correlations += [before.distance_correlation, after.distance_correlation]
    rows.append(("Spearman", "", "", *(_number(value, 1) for value in correlations)))
    yield ReadableTable(
        "Sentences by the frequency of their tokens, rarest first",
        ("group", "sentences", "mean log p", "norm before", "after", "5-NN before", "after"),
        tuple(rows),
        "Norm, and mean distance to the 5 nearest sentences. A Spearman (×100) far from 0 means that a sentence's place in the "
        "space depends on how common its words are; below 0, sentences of rare words are further out or sparser.",
    )


def _logits(report: LogitReport) -> Iterator[ReadableTable]:
    def row(name: str, shares: LogitShares) -> tuple[str, ...]:
        figures = [_percent(shares.constant), _percent(shares.explained), _number(shares.slope)]
        return (name, str(shares.words), f"{shares.log_frequency:.2f}", f"{shares.logit:+.2f}", *figures)

    found = report.dot_product
    share = found.overall.explained
    yield ReadableTable(
        f"Logits in {found.contexts} masked contexts: h·w ≈ PMI(x, c) + log p(x) + λ(c)",
        ("rank", "words", "mean log p", "mean h·w", "same everywhere", "log p explains", "slope"),
        (
            row("all", found.overall),
            *(row(f"[{part.ranks[0]}, {part.ranks[1]})", part) for part in found.bins),
            row("all, h·w + bias", report.logit.overall),
        ),
        f"Word frequency alone explains {_percent(share)} of the variance of h·w over words: this much of the space that words "
        "and sentences share depends on how common a word is. “Same everywhere”, in all contexts, is the most that any "
        "property of the word alone could explain; the equation has a slope of 1.",
    )


def _density(analysis: Analysis) -> Iterator[ReadableTable]:
    if analysis.density is None:
        return
    before, after = analysis.density.before, analysis.density.after
    rows = _by_group(
        analysis.density,
        lambda *pair: (cell for one in pair for cell in (f"{one.distance:.2f}", f"{one.log_density:.1f}")),
    )
    rows.append(("Spearman", "", "", _number(before.correlation, 1), "", _number(after.correlation, 1)))
    yield ReadableTable(
        "Holes: log-density under the flow by distance to the 5 nearest sentences, nearest first",
        ("group", "sentences", "5-NN before", "log p", "5-NN after", "log p"),
        tuple(rows),
        "With a Spearman (×100) near −100 the unlikely sentences are those without near neighbours: the flow's density is low "
        "in the holes.",
    )
    yield ReadableTable(
        "The least likely sentences",
        ("", "bits/dim", "z", "sentence"),
        tuple((str(one.rank), _number(one.bits_per_dim), _number(one.z, 1), one.text) for one in analysis.least_likely),
        "Garbage and truly unusual sentences come first; z counts robust deviations from the median. `bertflow outliers` lists "
        "more, each scored by a flow that was not fitted on it.",
        text_last=True,
    )


def _pairs(found: PairGeometry) -> Iterator[ReadableTable]:
    def row(name: str, one: LexicalSummary) -> tuple[str, ...]:
        return (name, *(_number(value, 1) for value in (one.correlation, one.near_correlation, one.gold_correlation)))

    near = found.gold
    yield ReadableTable(
        f"Words or meaning? Similarity of {found.pairs} pairs against edit distance in words, Spearman ×100",
        ("", "vs edit distance", f"… of the {near.near_pairs} pairs ≤ {near.near} apart", "vs gold"),
        (row("gold", found.gold), row("before", found.similarity.before), row("after", found.similarity.after)),
        "The paper's Table 6. A similarity that follows edit distance more than people's scores do measures words, not "
        "meaning.",
    )
    if found.alignment is not None:
        yield ReadableTable(
            f"Alignment of the {found.paraphrases} pairs that people scored highest",
            ("", "before", "after"),
            (("mean squared distance on the sphere", f"{found.alignment.before:.3f}", f"{found.alignment.after:.3f}"),),
            "0: paraphrases have the same vector; 2: as far apart as unrelated directions. A good space has both low alignment "
            "and low uniformity: where all vectors are the same, alignment is 0 too.",
        )


def _row(spaces: Sequence[object], name: str, field: str, wanted: str, digits: int = 3) -> tuple[str, ...]:
    """One figure of each space, and the value to be wished for."""
    return (name, *(_number(getattr(space, field), digits) for space in spaces), wanted)


def _by_group(found: BeforeAfter[Any], figures: Callable[[Any, Any], Iterable[str]]) -> list[tuple[str, ...]]:
    """Number, size and figures of each group of sentences, before and after."""
    groups = zip(found.before.groups, found.after.groups, strict=True)
    return [(str(i), str(a.sentences), *figures(a, b)) for i, (a, b) in enumerate(groups, 1)]


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no "-0.00"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"
