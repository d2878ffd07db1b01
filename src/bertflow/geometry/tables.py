"""An analysis as tables of text, each with a line in plain words on how to read it; for terminals and pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bertflow.geometry.decomposition import LogitShares
from bertflow.geometry.isotropy import Isotropy
from bertflow.geometry.lexical import LexicalSummary
from bertflow.geometry.masked import LogitReport
from bertflow.geometry.measures import Analysis, PairGeometry
from bertflow.geometry.normality import Normality
from bertflow.geometry.sphere import uniform_value

NOTHING = "–"


@dataclass(frozen=True)
class ReadableTable:
    """A table of text.

    Args:
        title: What it shows.
        columns: Names of the columns.
        rows: The cells, one tuple a row.
        reading: How to read it, in plain words.
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

    def row(name: str, field: str, digits: int, ideal: str) -> tuple[str, ...]:
        return (name, *(_number(getattr(space, field), digits) for space in spaces), ideal)

    d = analysis.gaussian.dim
    yield ReadableTable(
        "Isotropy: are all directions used alike?",
        ("", "before", "after", "Gaussian noise", "perfect"),
        (
            ("mean cosine of random sentences", *map(_cosine, spaces), "0"),
            row("share of the common direction", "mean_share", 3, "0"),
            row("effective rank", "effective_rank", 1, str(d)),
            row("IsoScore", "iso_score", 3, "1"),
            row("partition ratio", "partition_ratio", 3, "1"),
            row("uniformity (lower is better)", "uniformity", 2, f"{uniform_value(d):.2f}"),
            row(f"hubness (k = {spaces[1].neighbours})", "hubness", 2, "0"),
        ),
        "After calibration the figures should come near those of Gaussian noise with as many rows and dimensions. A mean "
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
        "Rogue dimensions: which make all sentences look alike?",
        ("", "dimension", "mean", "deviation", "share of mean cosine", "part of mean cosine"),
        tuple(rows),
        f"Before, {before.half} of {before.dim} dimensions make half of the mean cosine, and {len(before.outliers)} lie more "
        f"than {before.threshold:g} of their deviations from zero. A share matters only where the mean cosine is not near 0.",
    )


def _normality(analysis: Analysis) -> Iterator[ReadableTable]:
    pair = (analysis.normality.before, analysis.normality.after)

    def row(name: str, field: str, wanted: str) -> tuple[str, ...]:
        return (name, *(_number(getattr(space, field), 3) for space in pair), wanted)

    after: Normality = pair[1]
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
        "With thousands of sentences a test rejects any real space: skewness and kurtosis say by how much. Mardia's figure "
        "is the same under every linear map: what it has above 1, no whitening can take away.",
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
        "The paper's Table 1. In BERT all rows grow from left to right: frequent words lie near the origin and close together, "
        "rare ones far out and sparse.",
    )


def _frequency(analysis: Analysis) -> Iterator[ReadableTable]:
    if analysis.frequency is None:
        return
    before, after = analysis.frequency.before, analysis.frequency.after
    rows = [
        (
            str(i),
            str(a.sentences),
            f"{a.log_frequency:.2f}",
            *(f"{v:.2f}" for v in (a.norm, b.norm, a.distance, b.distance)),
        )
        for i, (a, b) in enumerate(zip(before.groups, after.groups, strict=True), 1)
    ]
    correlations = [before.norm_correlation, after.norm_correlation]
    correlations += [before.distance_correlation, after.distance_correlation]
    rows.append(("Spearman", "", "", *(_number(value, 1) for value in correlations)))
    yield ReadableTable(
        "Sentences by the frequency of their tokens, rarest first",
        ("group", "sentences", "mean log p", "norm before", "after", "5-NN before", "after"),
        tuple(rows),
        "Norm, and mean distance to the 5 nearest sentences. A Spearman (×100) far from 0 means that how common the words are "
        "is written into where a sentence lies; below 0, sentences of rare words lie further out or sparser.",
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
        f"Of the variance of h·w over words, word frequency alone explains {_percent(share)}: so much of the space that words "
        "and sentences share is about how common a word is. “Same everywhere”, in all contexts, is the most that any property "
        "of the word alone could explain; a slope of 1 is what the equation says.",
    )


def _density(analysis: Analysis) -> Iterator[ReadableTable]:
    if analysis.density is None:
        return
    before, after = analysis.density.before, analysis.density.after
    rows = [
        (
            str(i),
            str(a.sentences),
            f"{a.distance:.2f}",
            f"{a.log_density:.1f}",
            f"{b.distance:.2f}",
            f"{b.log_density:.1f}",
        )
        for i, (a, b) in enumerate(zip(before.groups, after.groups, strict=True), 1)
    ]
    rows.append(("Spearman", "", "", _number(before.correlation, 1), "", _number(after.correlation, 1)))
    yield ReadableTable(
        "Holes: log-density under the flow by distance to the 5 nearest sentences, nearest first",
        ("group", "sentences", "5-NN before", "log p", "5-NN after", "log p"),
        tuple(rows),
        "With a Spearman (×100) near −100 the flow finds unlikely just those sentences that lie alone: its density has no high "
        "ground in the holes.",
    )
    yield ReadableTable(
        "The least likely sentences",
        ("", "bits/dim", "z", "sentence"),
        tuple((str(one.rank), _number(one.bits_per_dim), _number(one.z, 1), one.text) for one in analysis.least_likely),
        "Garbage and true oddities come first; z counts robust deviations from the median. `bertflow outliers` lists more, "
        "each scored by a flow that has not seen it.",
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
        "The paper's Table 6. Similarity that follows edit distance more than people's scores do is similarity of words, not "
        "of meaning.",
    )
    if found.alignment is not None:
        yield ReadableTable(
            f"Alignment of the {found.paraphrases} pairs that people scored highest",
            ("", "before", "after"),
            (("mean squared distance on the sphere", f"{found.alignment.before:.3f}", f"{found.alignment.after:.3f}"),),
            "0: paraphrases coincide; 2: as far apart as unrelated directions. Good spaces have low alignment and low "
            "uniformity at once: a space where everything coincides has alignment 0 too.",
        )


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no "-0.00"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"
