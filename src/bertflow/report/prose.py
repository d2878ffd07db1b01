"""What the charts show, in words: captions that say the finding, and the tables behind the charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertflow.evaluation.judgement import Judgement, Ranked
from bertflow.evaluation.judgement.result import signed
from bertflow.geometry import ReadableTable
from bertflow.geometry.frequency import ByBin, FrequencyTable
from bertflow.geometry.tables import NOTHING
from bertflow.report.cosines import TAILS, Cosines, CosineSpread
from bertflow.report.findings import Findings
from bertflow.report.maps import SpaceMap, WordSpace
from bertflow.report.pairs import Grades, LexicalView, Move
from bertflow.report.payload import spectrum_points
from bertflow.report.verdict import METRICS, TONES

ENDS = 10  # of a map's points in the table behind it, from either end of the colour scale


@dataclass(frozen=True)
class Interval:
    """A score with its interval, placed on a common scale in percent of its width."""

    name: str
    text: str
    left: float
    middle: float
    right: float


@dataclass(frozen=True)
class Tile:
    """One figure before and after."""

    name: str
    before: str
    after: str


def tiles(findings: Findings) -> list[Tile]:
    """Return the figures that stand beside the verdict."""
    found, spread = findings.analysis.isotropy, findings.cosines.spread
    rows = [
        Tile("mean cosine of random sentences", _two(found.before.mean_cosine), _two(found.after.mean_cosine)),
        Tile(
            f"effective rank of {found.before.dim}",
            f"{found.before.effective_rank:.0f}",
            f"{found.after.effective_rank:.0f}",
        ),
        Tile("“similar” begins at cosine", _two(spread.before.similar), _two(spread.after.similar)),
    ]
    if findings.grades is not None:
        score = findings.grades.score
        name = f"{METRICS[score.before.metric]} with people"
        rows.insert(0, Tile(name, f"{score.before.value:.1f}", f"{score.after.value:.1f}"))
    return rows


def tone(judgement: Judgement) -> str:
    """The colour of the verdict."""
    return TONES[judgement.verdict]


def judgement_table(judgement: Judgement) -> ReadableTable:
    """The recipes, best first."""
    rows = tuple(
        (one.recipe, NOTHING if one.score is None else f"{one.score:.1f}", *_gain(one)) for one in judgement.ranking
    )
    kind = "gain" if judgement.measured else "expected gain"
    return ReadableTable("Recipes", ("recipe", judgement.metric or "score", kind, "interval"), rows, "All ×100.")


def _gain(one: Ranked) -> tuple[str, str]:
    if one.recipe == "raw":
        return NOTHING, NOTHING
    return signed(one.gain.value), f"{signed(one.gain.low)} to {signed(one.gain.high)}"


def sentences_caption(findings: Findings) -> str:
    """Say where the cloud of sentences lies."""
    before, after = findings.analysis.isotropy.before, findings.analysis.isotropy.after
    moved = "calibration centres it" if before.mean_share > 0.1 > after.mean_share else "calibration hardly moves it"
    place = "lies away from the origin, in a cone" if before.mean_share > 0.1 else "surrounds the origin already"
    return (
        f"Before, the cloud {place}, and {moved}: what all sentences have in common makes up "
        f"{100 * before.mean_share:.0f} % of their squared length before and {100 * after.mean_share:.0f} % after."
    )


def words_caption(words: WordSpace, table: FrequencyTable | None) -> str:
    """Say how length grows from frequent to rare words."""
    if table is None:
        return ""
    ratios = [_growth(one.norm) for one in (table, words.table)]
    if None in ratios:
        return "Too few words are counted to compare frequent with rare ones."
    before, after = ratios
    return (
        f"From the most frequent to the rarest words counted, the mean length changes by a factor of {before:.2f} before "
        f"and {after:.2f} after. In BERT-base the paper found 1.53: frequent words near the origin, rare ones far out."
    )


def cosines_caption(found: Cosines) -> str:
    """Say from which cosine on two sentences are similar."""
    before, after = found.spread.before, found.spread.after
    text = (
        f"Call two sentences similar from cosine {before.similar:.2f} before, {after.similar:.2f} after: only 1 in 100 of "
        f"{found.pairs:,} random pairs exceeds it. 1 in 1000 exceeds {before.very_similar:.2f} and {after.very_similar:.2f}."
    )
    if before.found is not None and after.found is not None:
        text += (
            f" Of the {found.alike:,} pairs that people scored {found.alike_from:g} or more, {100 * before.found:.0f} % lie "
            f"above the first line before and {100 * after.found:.0f} % after."
        )
    return text


def cosines_table(found: Cosines) -> ReadableTable:
    """Return the thresholds."""

    def row(name: str, field: str) -> tuple[str, ...]:
        return (name, *(f"{getattr(one, field):.3f}" for one in (found.spread.before, found.spread.after)))

    rows = [row("mean of random pairs", "mean"), row("standard deviation", "deviation")]
    rows.append(row(f"similar: exceeded by {100 * TAILS[0]:g} % of random pairs", "similar"))
    rows.append(row(f"very similar: exceeded by {100 * TAILS[1]:g} %", "very_similar"))
    best = [one.best for one in (found.spread.before, found.spread.after)]
    if best[0] is not None and best[1] is not None:
        rows.append(("best F1 on the labelled pairs, from", *(f"{one.cosine:.3f}" for one in best if one)))
        rows.append(("… its F1 (precision, recall)", *(_f1(one) for one in (found.spread.before, found.spread.after))))
    return ReadableTable(
        "Thresholds",
        ("cosine", "before", "after"),
        tuple(rows),
        "A threshold belongs to one space: never carry it from one encoder or calibrator to another."
        + (" The best F1 was chosen on these very pairs, so expect a little less on others." if best[0] else ""),
    )


def spectrum_caption(findings: Findings) -> str:
    """Say how even the deviations along the principal axes are."""
    found = findings.analysis.isotropy
    before, after = (_steepness(one.spectrum) for one in (found.before, found.after))
    return (
        f"The widest principal axis is {before} the middle one before and {after} it after; level as the dotted line of "
        "Gaussian noise would be perfect."
    )


def _steepness(spectrum: Sequence[float]) -> str:
    """How much wider the widest axis is; the middle one has no width where there are fewer sentences than dimensions."""
    widest, middle = float(np.max(spectrum)), float(np.median(spectrum))
    return f"{widest / middle:.1f} times as wide as" if middle > 1e-6 * widest else "infinitely wider than"


def spectrum_table(findings: Findings) -> ReadableTable:
    """Return some of the deviations."""
    found = findings.analysis.isotropy
    both = [dict(spectrum_points(one.spectrum)) for one in (found.before, found.after)]
    shown = [axis for axis in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, found.before.dim) if axis in both[0]]
    return ReadableTable(
        "Deviation along the principal axes, divided by its root mean square",
        ("axis", "before", "after"),
        tuple((str(axis), *(f"{one[axis]:.3f}" if axis in one else NOTHING for one in both)) for axis in shown),
        "The same figure for all axes means that all directions are used alike.",
    )


def lexical_caption(view: LexicalView) -> str:
    """Say how much similarity follows the words."""
    before, after = view.summary.before.correlation, view.summary.after.correlation
    text = f"Spearman ×100 of similarity with edit distance: {_one(before)} before, {_one(after)} after"
    if view.gold is not None:
        return f"{text}; people's own scores have {_one(view.gold.correlation)}. Nearer to people's is better."
    return f"{text}. Near −100, similarity only counts shared words."


def lexical_table(view: LexicalView) -> ReadableTable:
    """Return the correlations behind the scatter."""
    near = view.summary.before
    rows = [("before", view.summary.before), ("after", view.summary.after)]
    rows += [] if view.gold is None else [("people", view.gold)]
    return ReadableTable(
        "Similarity against edit distance in words, Spearman ×100",
        ("", f"all {near.pairs:,} pairs", f"the {near.near_pairs:,} at most {near.near} edits apart"),
        tuple((name, _one(one.correlation), _one(one.near_correlation)) for name, one in rows),
        "The paper's Table 6 and Figure 2.",
    )


def map_table(found: SpaceMap, what: str, figure: str) -> ReadableTable:
    """Return both ends of a map's colour scale."""
    order = np.argsort(-found.values, kind="stable")
    ends = [*order[:ENDS], *order[-ENDS:]] if len(order) > 2 * ENDS else [*order]
    return ReadableTable(
        f"Both ends of the colour scale: {found.high}, and {found.low}",
        (figure, "before (x, y)", "after (x, y)", what),
        tuple(
            (
                f"{found.values[i]:,.4g}",
                *(f"{p[i, 0]:.2f}, {p[i, 1]:.2f}" for p in (found.before, found.after)),
                found.labels[i],
            )
            for i in ends
        ),
        f"Coloured by {found.shade}. The search box finds every other point.",
        text_last=True,
    )


def table1(found: FrequencyTable, title: str) -> ReadableTable:
    """Return Table 1 of one space."""
    figures = [("mean norm", found.norm)]
    figures += [(f"{k}-NN distance", values) for k, values in found.distance.items()]
    figures += [(f"{k}-NN dot product", values) for k, values in found.dot.items()]
    return ReadableTable(
        title,
        ("rank", *(f"{start + 1:,}–{stop:,}" for start, stop in found.bins)),
        (("words", *(f"{n:,}" for n in found.words)), *((name, *map(_number, values)) for name, values in figures)),
        "",
    )


def intervals(grades: Grades) -> list[Interval]:
    """Place both scores on one scale that is a little wider than their intervals."""
    scores = [("before", grades.score.before), ("after", grades.score.after)]
    ends = [end for _, one in scores for end in (one.low, one.high, one.value) if end is not None]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    low, width = min(ends) - margin, max(ends) - min(ends) + 2 * margin

    def place(value: float | None) -> float:
        return 0.0 if value is None else round(100 * (value - low) / width, 2)

    return [
        Interval(
            name,
            f"{one.value:.1f} ({one.low:.1f} to {one.high:.1f})",
            place(one.low),
            place(one.value),
            place(one.high),
        )
        for name, one in scores
    ]


def evaluation_table(grades: Grades) -> ReadableTable:
    """Return scores with their intervals, and the difference."""
    before, after, change = grades.score.before, grades.score.after, grades.change
    rows = [
        (name, _one(one.value), f"{_one(one.low)} to {_one(one.high)}", "")
        for name, one in (("before", before), ("after", after))
    ]
    p_value = f"{change.p_value:.3f}"
    rows.append(("change", f"{_one(change.difference)}", f"{_one(change.low)} to {_one(change.high)}", p_value))
    if len(before.per_subset) > 1:
        rows += [(f"{name}: before → after", f"{_one(value)} → {_one(after.per_subset[name])}", "", "")
                 for name, value in before.per_subset.items()]  # fmt: skip
    return ReadableTable(
        f"{METRICS[before.metric]} of cosine with people's scores, {before.pairs:,} pairs",
        ("", "score", f"{100 * before.confidence:g} % interval", "p"),
        tuple(rows),
        "Intervals by bootstrap over the pairs; the change by paired bootstrap: both spaces see the same resamples.",
    )


def moves_reading(moves: tuple[Move, ...], ranked: int, labelled: bool) -> str:
    """Say what the list of moved pairs shows."""
    if not moves:
        return "No pair changed its rank."
    if not labelled:
        return (
            f"Among {ranked:,} pairs of nearest neighbours in either space, ranked by cosine; rank 1 is the most similar. "
            "Nobody has scored them: judge for yourself."
        )
    better = sum(bool(move.better) for move in moves)
    return (
        f"Among {ranked:,} labelled pairs ranked by cosine; rank 1 is the most similar. Of these {len(moves)}, {better} came "
        "nearer to the rank that people gave them."
    )


def _growth(norms: ByBin) -> float | None:
    known = [value for value in norms if value is not None]
    return known[-1] / known[0] if len(known) > 1 and known[0] else None


def _f1(one: CosineSpread) -> str:
    best = one.best
    return NOTHING if best is None else f"{best.f1:.2f} ({best.precision:.2f}, {best.recall:.2f})"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _one(value: float | None) -> str:
    return NOTHING if value is None else f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def _two(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
