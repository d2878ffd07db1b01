"""What every task says of an encoder: a score with its bootstrap interval, and how two scores differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError

Setting: TypeAlias = Literal["all", "mean", "wmean"]
Unit: TypeAlias = Literal["pairs", "queries", "texts"]
Vector: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A score ×100 with its percentile bootstrap interval.

    Args:
        value: The score.
        low: Lower end of the interval; None where no resamples were asked for.
        high: Upper end.
        setting: How sub-sets are joined: ``"all"``, ``"mean"`` or ``"wmean"``.
        metric: Such as ``"spearman"``, ``"auc"``, ``"ndcg@10"`` or ``"v-measure"``.
        size: How many units were judged.
        per_subset: The score of each sub-set alone; None where it has none, as with constant gold.
        confidence: Of the interval.
        unit: What was judged, and is resampled: pairs, queries or texts.
        also: Other metrics of the same run ×100, such as ``{"mrr@10": 51.2}``.
        units: What each unit gave: the cosine of each pair (n,), the metric of each query (n,), the cluster of each text
            under each seed (s, n).
        draws: The score of each resample (b,). Scores of one task with one seed have the same resamples, so that their
            draws can be subtracted: see ``difference``.
    """

    value: float
    low: float | None
    high: float | None
    setting: Setting
    metric: str
    size: int
    per_subset: dict[str, float | None]
    confidence: float
    unit: Unit = "pairs"
    also: dict[str, float] = field(default_factory=dict)
    units: npt.NDArray[Any] | None = field(default=None, repr=False, compare=False)
    draws: Vector | None = field(default=None, repr=False, compare=False)

    @property
    def pairs(self) -> int:
        """How many pairs were judged; of another task 0."""
        return self.size if self.unit == "pairs" else 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain JSON values; the size stands under the name of its unit."""
        fields = ("value", "low", "high", "setting", "metric")
        shown: dict[str, Any] = {name: getattr(self, name) for name in fields} | {self.unit: self.size}
        shown |= {"per_subset": dict(self.per_subset), "confidence": self.confidence}
        return shown | ({"also": dict(self.also)} if self.also else {})


@dataclass(frozen=True)
class Comparison:
    """How a first method's score differs from a second's on the same task, ×100.

    Args:
        difference: First minus second.
        low: Lower end of the interval of the difference.
        high: Upper end.
        p_value: Two-sided, by paired bootstrap: how often the sign of the difference is lost in a resample.
        confidence: Of the interval.
    """

    difference: float
    low: float
    high: float
    p_value: float
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


def difference(first: Score, second: Score) -> Comparison:
    """Compare two scores of one task by paired bootstrap: both were resampled in the same way.

    Args:
        first: From ``task.score(encode)``.
        second: From the same task with the same seed and number of resamples.
    """
    if first.draws is None or second.draws is None:
        raise InputError("A comparison needs resamples; these scores were made with resamples=0. Use 1000 or more.")
    kinds = [(score.unit, score.size, score.metric, score.setting, len(score.draws)) for score in (first, second)]  # type: ignore[arg-type]
    if kinds[0] != kinds[1]:
        raise InputError(f"Only scores of one task can be compared; these are {kinds[0]} and {kinds[1]}.")
    draws = first.draws - second.draws
    low, high = interval(draws, first.confidence)
    draws = draws[np.isfinite(draws)]
    # one is added so that a finite number of resamples never claims certainty
    tail = min((draws <= 0).sum(), (draws >= 0).sum()) + 1
    p_value = min(1.0, 2 * float(tail) / (len(draws) + 1))
    return Comparison(first.value - second.value, low, high, p_value, first.confidence)


def interval(draws: Vector, confidence: float) -> tuple[float, float]:
    """Percentile interval of the resamples that have a score."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; it must lie between 0 and 1, such as 0.95.")
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        raise InputError("No resample has a score: there are too few units, or too few resamples, for an interval.")
    low, high = np.percentile(draws, [50 * (1 - confidence), 50 * (1 + confidence)])
    return float(low), float(high)


def with_interval(draws: Vector | None, confidence: float) -> dict[str, Any]:
    """Return the fields of a ``Score`` that come from its resamples (b,); of None: no interval."""
    low, high = (None, None) if draws is None else interval(draws, confidence)
    return {"low": low, "high": high, "confidence": confidence, "draws": draws}
