"""Similarities against gold: Spearman, Pearson and AUC ×100, in the settings that papers use.

``all`` pools every pair into one correlation (Sentence-BERT, MTEB); ``mean`` averages the sub-sets' correlations;
``wmean`` weights that average by the sub-sets' sizes (BERT-flow, BERT-whitening). On STS12–16 they differ by points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, get_args

import numpy as np
from scipy import stats

from bertflow.errors import InputError
from bertflow.evaluation.bootstrap import Stratum, bootstrap_draws
from bertflow.evaluation.pairs import Metric
from bertflow.evaluation.scores import Comparison, Score, Setting, Vector, difference, with_interval

BySubset: TypeAlias = Mapping[str, Vector]


def metric_value(metric: Metric, similarities: Vector, gold: Vector) -> float:
    """Compute one metric ×100 over one set of pairs.

    Args:
        metric: ``"spearman"``, ``"pearson"`` or ``"auc"``.
        similarities: What a method says, (n,).
        gold: What people said, (n,); 0 and 1 for AUC.

    Raises:
        InputError: Where the metric is undefined, with the reason.
    """
    if metric not in get_args(Metric):
        raise InputError(f"There is no metric {metric!r}; use one of {', '.join(get_args(Metric))}.")
    if similarities.shape != gold.shape or gold.ndim != 1:
        raise InputError(f"Similarities have shape {similarities.shape} and gold {gold.shape}; both must be (n,).")
    if not (np.isfinite(similarities).all() and np.isfinite(gold).all()):
        raise InputError("Similarities or gold hold NaN or infinity.")
    if len(gold) < 2:
        raise InputError(f"{metric} needs at least 2 pairs; {len(gold)} came.")
    if metric == "auc":
        return _auc(similarities, gold)
    for values, what in ((similarities, "similarities"), (gold, "gold scores")):
        if values.min() == values.max():
            raise InputError(f"All {len(gold)} {what} are {values[0]:g}; {metric} is undefined where nothing varies.")
    correlate = stats.spearmanr if metric == "spearman" else stats.pearsonr
    return 100 * float(correlate(similarities, gold).statistic)


def score_pairs(
    similarities: BySubset,
    gold: BySubset,
    metric: Metric = "spearman",
    setting: Setting = "all",
    *,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Score:
    """Score a method's similarities against gold, both by sub-set.

    Args:
        similarities: For each sub-set the similarity of each pair, (n,).
        gold: For each sub-set the gold score of each pair, (n,).
        metric: ``"spearman"``, ``"pearson"`` or ``"auc"``.
        setting: ``"all"``, ``"mean"`` or ``"wmean"``; see the module's docstring.
        resamples: How many bootstrap resamples the interval rests on: of all pairs in the setting ``"all"``, within
            each sub-set otherwise. 0 gives no interval.
        seed: For the resamples.
        confidence: Of the interval.
    """
    strata, weights = _strata([similarities], gold, setting)
    value = _combine(strata, weights, metric, 0, list(gold) if setting != "all" else None)
    draws = bootstrap_draws(strata, weights, metric, resamples, seed)[0] if resamples > 0 else None
    return Score(
        value=value,
        setting=setting,
        metric=metric,
        size=sum(map(len, gold.values())),
        per_subset={name: _value_or_none(metric, similarities[name], gold[name]) for name in gold},
        units=np.concatenate([np.asarray(similarities[name], dtype=np.float64) for name in gold]),
        **with_interval(draws, confidence),
    )


def compare(
    first: BySubset,
    second: BySubset,
    gold: BySubset,
    metric: Metric = "spearman",
    setting: Setting = "all",
    *,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """Compare two methods' similarities on the same pairs by paired bootstrap; arguments as in ``score_pairs``."""
    if resamples < 1:
        raise InputError(f"A comparison needs resamples; {resamples} were asked for. Use 1000 or more.")
    first_score, second_score = (
        score_pairs(method, gold, metric, setting, resamples=resamples, seed=seed, confidence=confidence)
        for method in (first, second)
    )
    return difference(first_score, second_score)


def _strata(methods: Sequence[BySubset], gold: BySubset, setting: Setting) -> tuple[list[Stratum], list[float]]:
    """Group the pairs as the setting wants: one group of all, or one a sub-set, with weights."""
    if setting not in get_args(Setting):
        raise InputError(f"There is no setting {setting!r}; use one of {', '.join(get_args(Setting))}.")
    if not gold or any(set(method) != set(gold) for method in methods):
        raise InputError(f"Similarities must be given for exactly these sub-sets: {', '.join(gold) or 'none came'}.")
    wide = [{name: np.asarray(method[name], dtype=np.float64) for name in gold} for method in methods]
    judged = {name: np.asarray(gold[name], dtype=np.float64) for name in gold}
    for name, method in ((name, method) for name in gold for method in wide):
        if method[name].shape != judged[name].shape:
            raise InputError(
                f"Sub-set {name!r}: similarities {method[name].shape} and gold {judged[name].shape} differ in shape."
            )
    if setting == "all":
        pooled = [np.concatenate(list(method.values())) for method in wide]
        return [(pooled, np.concatenate(list(judged.values())))], [1.0]
    sizes = np.array([len(judged[name]) if setting == "wmean" else 1 for name in gold])
    strata: list[Stratum] = [([method[name] for method in wide], judged[name]) for name in gold]
    return strata, (sizes / sizes.sum()).tolist()


def _combine(
    strata: list[Stratum], weights: list[float], metric: Metric, method: int, names: list[str] | None
) -> float:
    """Weighted average of one method's values over the strata, naming the sub-set that has none."""
    total = 0.0
    for index, ((similarities, gold), weight) in enumerate(zip(strata, weights, strict=True)):
        try:
            total += weight * metric_value(metric, similarities[method], gold)
        except InputError as error:
            if names is None:
                raise
            raise InputError(f"Sub-set {names[index]!r}: {error}") from None
    return total


def _auc(similarities: Vector, gold: Vector) -> float:
    from sklearn.metrics import roc_auc_score  # a second of import that the correlations do not need

    classes = set(np.unique(gold))
    if classes != {0.0, 1.0}:
        held = ", ".join(f"{value:g}" for value in sorted(classes)[:3])
        raise InputError(f"AUC needs gold labels 0 and 1, both present; the labels here are {held}.")
    return 100 * float(roc_auc_score(gold, similarities))


def _value_or_none(metric: Metric, similarities: Vector, gold: Vector) -> float | None:
    try:
        return metric_value(metric, np.asarray(similarities, dtype=np.float64), np.asarray(gold, dtype=np.float64))
    except InputError:
        return None
