"""Without labels: what geometry and splices say, by a rule of a few constants.

1. A space whose vectors already spread over the sphere (``uniformity`` at or below ``EVEN``) is left as it is. Calibration
   has nothing to mend there, and what it then takes away is what tuning has put in.
2. Else the candidate with the best splice score is advised (``bertflow.advice.splices``). Its expected gain is ``SLOPE``
   times the share of the baseline's error, 100 − score, that it removes; ``SPREAD`` is how far off that was, as a standard
   deviation.
3. A gain of less than ``WORTH`` points is not worth a calibrator: leave it.

SLOPE and SPREAD are from the development cases alone: mini and mini tuned on NLI, STS-B dev, STS12, STS13. EVEN lies midway
between the least uneven of those spaces (−2.2) and perfect evenness (−4); one tuned encoder has been seen beyond it, and none
in between. ``results/advise.md`` tells how well all of it does on encoders and sets that had no part in this, and where it
fails: the splices know about words, not about negation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bertflow.advice.candidates import Candidate
from bertflow.geometry.isotropy import Isotropy

EVEN = -3.0
SLOPE = 21.0
SPREAD = 3.5
WORTH = 1.0
ROWS_A_DIMENSION = 2  # from here on a flow has most of its gain (mini, STS-B dev); with text, splices find that out
TWO_SIDED_95 = 1.96


@dataclass(frozen=True)
class Gain:
    """An expected change of Spearman (or AUC) ×100 over the baseline, with its 95 % interval."""

    value: float
    low: float
    high: float


TYPICAL = Gain(
    9.3, 3.2, 15.5
)  # of the flow over raw vectors of the same pooling, mean ± 1.96 deviations, development cases


def expected_gain(score: float, baseline: float) -> Gain:
    """What a splice score ×100 promises over the baseline's."""
    removed = 1 - (100 - score) / max(100 - baseline, 1e-9)
    value = SLOPE * removed
    return Gain(value, value - TWO_SIDED_95 * SPREAD, value + TWO_SIDED_95 * SPREAD)


def choose_by_rule(scores: Mapping[Candidate, float], baseline: Candidate, uniformity: float) -> Candidate:
    """Apply the rule to the splice scores of all candidates and the uniformity of the baseline's space."""
    if uniformity <= EVEN:
        return baseline
    best = max(scores, key=lambda candidate: scores[candidate])
    return best if expected_gain(scores[best], scores[baseline]).value >= WORTH else baseline


def choose_by_geometry(baseline: Candidate, geometry: Isotropy) -> Candidate:
    """With nothing but vectors: a flow for a crowded space with rows enough to fit one; else leave it."""
    enough = geometry.rows >= ROWS_A_DIMENSION * geometry.dim
    return Candidate(baseline.pooling, "flow") if geometry.uniformity > EVEN and enough else baseline
