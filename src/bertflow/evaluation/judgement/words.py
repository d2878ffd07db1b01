"""A judgement in plain words: a paragraph that a person understands who has never read a paper on embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertflow.evaluation.judgement.result import Gain, Judgement

TYPICAL = 60.0  # Spearman ×100 of raw vectors, where nobody has measured it
SCALES = {
    "search": "on a scale from 0 to 100, where 100 means that everything searched for comes first",
    "clusters": "on a scale from 0 to 100, where 100 means that groups are those that people would make",
}


def plain_words(found: Judgement) -> str:
    """Return the paragraph: what to do, what to expect of it, what that rests on, what would make it sure."""
    return " ".join(filter(None, (_what(found), _expected(found), _basis(found), _surer(found))))


def _what(found: Judgement) -> str:
    if found.verdict == "too little text":
        return (
            f"There are {found.sentences:,} different sentences, which is too little to say anything: a few thousand are good, "
            "a few hundred the least."
        )
    if found.verdict == "leave":
        return f"Use {found.encoder} as it is: none of the recipes is likely to serve you better."
    if found.verdict == "cannot tell":
        return f"From the text alone nobody can tell whether a recipe would improve {found.encoder} for this use."
    return f"Use the recipe {found.recipe} with {found.encoder}."


def _expected(found: Judgement) -> str:
    if found.verdict == "too little text" or not found.ranking:
        return ""
    gain = found.gain
    best = next((one.recipe for one in found.ranking if one.recipe != "raw"), found.recipe)
    who = "It" if found.verdict == "use" else f"The recipe {best}"
    did = "answered" if found.measured else "will probably answer"
    if found.purpose in SCALES:
        moved = "was" if found.measured else "will probably be"
        return f"{who} {moved} {_points(gain)}, {SCALES[found.purpose]}."
    start = next((one.score for one in found.ranking if one.recipe == "raw" and one.score is not None), TYPICAL)
    values = [_of_hundred(value, start, found.metric) for value in (gain.value, gain.low, gain.high)]
    return (
        f"Asked which of two pairs of sentences is closer in meaning, {who[0].lower() + who[1:]} {did} {_more(values[0])} of "
        f"100 such questions right, compared with the encoder alone ({_range(values[1], values[2])})."
    )


def _basis(found: Judgement) -> str:
    if found.verdict == "too little text":
        return ""
    texts = f"{found.sentences:,} sentences"
    if found.measured:
        return f"This was measured on {found.labels:,} labelled {found.unit}; the recipes were fitted on {texts}."
    return f"This rests on {texts} and no labels: it is what came of other encoders and texts that looked like this."


def _surer(found: Judgement) -> str:
    if found.needed is None or found.verdict == "too little text":
        return ""
    return f"About {found.needed:,} pairs that people have scored would make it clear."


def _of_hundred(gain: float, start: float, metric: str | None) -> float:
    """Of 100 questions which of two is closer, how many more are answered right; an AUC counts just that."""
    if metric == "auc":
        return gain
    return 100 * (_right((start + gain) / 100) - _right(start / 100))


def _right(spearman: float) -> float:
    """Share of such questions that are answered right at a rank correlation, if both were Gaussian."""
    pearson = 2 * math.sin(math.pi * min(max(spearman, -1.0), 1.0) / 6)
    return 0.5 + math.asin(min(max(pearson, -1.0), 1.0)) / math.pi


def _more(value: float) -> str:
    if abs(value) < 0.5:
        return "as many"
    return f"about {abs(value):.0f} {'more' if value > 0 else 'fewer'}"


def _range(low: float, high: float) -> str:
    ends = [f"{abs(round(end)):.0f} {'fewer' if round(end) < 0 else 'more'}" for end in (low, high)]
    return f"from {ends[0]} to {ends[1]}"


def _points(gain: Gain) -> str:
    if abs(gain.value) < 0.5:
        return f"as good as the encoder alone (from {gain.low:+.0f} to {gain.high:+.0f})".replace("-", "−")
    better = "better" if gain.value > 0 else "worse"
    return f"about {abs(gain.value):.0f} points {better} (from {gain.low:+.0f} to {gain.high:+.0f})".replace("-", "−")
