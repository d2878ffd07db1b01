"""Without labels: what came of other encoders and texts that looked like this.

The precedents lie in ``precedents.json``, which `python results/advise.py` measures and writes: what each recipe gained over
raw vectors on an encoder, a text and a use, on development data. The rule looks up those of encoders that were tuned for
similarity or not, as this one is; their weighted mean is the expected gain, their spread the interval. Precedents of
another purpose weigh half. ``results/advise.md`` judges each encoder by the precedents of all others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np
from scipy.stats import t as student

from bertflow.evaluation.judgement.evidence import UNKNOWN, Evidence
from bertflow.evaluation.judgement.result import RAW, Gain, Purpose, Verdict

EVEN = -2.6  # uniformity of raw vectors up to which an encoder counts as tuned, whatever its folder says
OTHERS = 0.5  # what a precedent of another purpose weighs
WORTH = 1.0  # points under which a gain is not worth a recipe
SURE = 0.9  # of the interval
SURER = 1.0  # standard deviations that an expected gain must be above zero to be advised
NARROWEST = 1.0  # points: no spread of precedents is taken for less
PAIRS_SPREAD = (
    80.0  # half the 95 % interval of a gain times the root of the number of pairs; median over the precedents
)
SMALLEST = 2.0  # points: what pairs should be able to show


@dataclass(frozen=True)
class Precedent:
    """What recipes gained in one case.

    Args:
        encoder: Its name.
        text: The data set.
        purpose: What it is for.
        tuned: Whether the encoder was tuned for similarity.
        gains: Over raw vectors, by recipe.
    """

    encoder: str
    text: str
    purpose: Purpose
    tuned: bool
    gains: dict[str, float]


@dataclass(frozen=True)
class Decision:
    """What the rule says: a verdict, a recipe, the gain of the most promising one, all recipes' gains, and why."""

    verdict: Verdict
    recipe: str
    gain: Gain
    gains: dict[str, Gain] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def decide(evidence: Evidence, purpose: Purpose, known: Sequence[Precedent] | None = None) -> Decision:
    """Judge by precedents.

    Args:
        evidence: Of the corpus, the encoder and the recipes.
        purpose: What the vectors are for.
        known: Precedents; default: those that ship.
    """
    tuned = counts_as_tuned(evidence)
    alike = [one for one in (precedents() if known is None else known) if one.tuned == tuned]
    names = [name for name in evidence.spaces if name != RAW]
    found = {name: expected for name in names if (expected := _expected(name, alike, purpose)) is not None}
    reasons = tuple(_reasons(evidence, tuned, len(alike), [name for name in names if name not in found]))
    if not found:
        return Decision("cannot tell", RAW, Gain(0.0, 0.0, 0.0), {}, reasons)
    best = max(found, key=lambda name: found[name][0].value)
    gain, spread = found[best]
    verdict = _verdict(evidence, gain, spread)
    gains = {name: expected[0] for name, expected in found.items()}
    return Decision(verdict, best if verdict == "use" else RAW, gain, gains, reasons)


def counts_as_tuned(evidence: Evidence) -> bool:
    """Whether an encoder says that it was tuned for similarity, or its vectors lie as those of such encoders do."""
    return evidence.tuned or evidence.spaces[RAW].uniformity <= EVEN


def pairs_needed(gain: Gain) -> int:
    """Labelled pairs with which a gain of the expected size, at least ``SMALLEST``, would stand out from chance."""
    return int(np.ceil((PAIRS_SPREAD / max(abs(gain.value), SMALLEST)) ** 2 / 50) * 50)


@cache
def precedents() -> tuple[Precedent, ...]:
    """Return the cases that ship."""
    rows = json.loads(files("bertflow.evaluation.judgement").joinpath("precedents.json").read_text(encoding="utf-8"))
    return tuple(Precedent(**row) for row in rows)


def _expected(recipe: str, alike: Sequence[Precedent], purpose: Purpose) -> tuple[Gain, float] | None:
    """Weighted mean of what a recipe gained in such cases, the interval for one more, and the spread; None if unheard of."""
    known = [one for one in alike if recipe in one.gains]
    if len(known) < 2:
        return None
    gains = np.array([one.gains[recipe] for one in known])
    weights = np.array([1.0 if one.purpose == purpose else OTHERS for one in known])
    cases = float(weights.sum() ** 2 / np.square(weights).sum())  # as many of equal weight would be as sure
    value = float(np.average(gains, weights=weights))
    variance = float(np.average((gains - value) ** 2, weights=weights)) * cases / (cases - 1)
    spread = max(float(np.sqrt(variance)), NARROWEST)
    half = float(student.ppf((1 + SURE) / 2, cases - 1)) * spread * float(np.sqrt(1 + 1 / cases))
    return Gain(value, value - half, value + half), spread


def _verdict(evidence: Evidence, gain: Gain, spread: float) -> Verdict:
    if (evidence.unknown or 0.0) >= UNKNOWN:
        return "cannot tell"
    if gain.value < WORTH:
        return "leave"
    return "use" if gain.value >= SURER * spread else "cannot tell"


def _reasons(evidence: Evidence, tuned: bool, cases: int, unheard: list[str]) -> list[str]:
    raw = evidence.spaces[RAW]
    if (evidence.unknown or 0.0) >= UNKNOWN:
        known = 100 * (1 - (evidence.unknown or 0.0))
        found = [
            f"The tokenizer knows only {known:.0f} % of this text's tokens: the encoder was not made for this language or kind "
            "of text. Take another encoder."
        ]
    elif evidence.tuned:
        found = [
            "The encoder's folder says that sentence-transformers made it, so it is most likely tuned for similarity."
        ]
    elif tuned:
        found = [
            f"The vectors are spread evenly already (uniformity {raw.uniformity:.1f}), as those of tuned encoders are."
        ]
    else:
        found = [
            f"Two random sentences have a cosine of {raw.mean_cosine:.2f}, and nothing says that the encoder was tuned."
        ]
    found.append(f"Expected gains are those of {cases} other cases of such encoders.")
    if evidence.copies > 0.05:
        found.append(f"{100 * evidence.copies:.0f} % of the sentences have a near copy among the others.")
    if unheard:
        found.append(f"Without labels nothing is known of {', '.join(unheard)}.")
    return [text.replace("-", "−") if "uniformity" in text else text for text in found]
