"""With labelled pairs: choose on some folds, tell the gain on the others.

The calibrators saw sentences but no labels, so nothing is fitted in a fold; only the *choice* among the candidates uses
labels, and choosing the best of twenty flatters it. Hence each fold's gain is that of what the other folds chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertflow.advice.candidates import Candidate
from bertflow.errors import InputError
from bertflow.evaluation import Comparison, PairTask, compare, metric_value
from bertflow.evaluation.pairs import Metric
from bertflow.evaluation.scores import Vector

FOLDS = 5
FEWEST_PAIRS = 50  # ten a fold; a correlation over fewer says nothing
INNER_RESAMPLES = 200

Similarities = Mapping[Candidate, Vector]


@dataclass(frozen=True)
class Crossvalidated:
    """What labelled pairs say.

    Args:
        choice: What all pairs together choose.
        gain: Of what the other folds chose over the baseline, on each fold's own pairs; averaged, ×100.
        picks: How many folds chose what.
        values: Each candidate's score ×100 on all pairs.
    """

    choice: Candidate
    gain: Comparison
    picks: dict[Candidate, int]
    values: dict[Candidate, float]


def crossvalidate(
    similarities: Similarities, gold: Vector, metric: Metric, baseline: Candidate, *, seed: int = 0
) -> Crossvalidated:
    """Choose a candidate and tell honestly what it gains.

    Args:
        similarities: Of each pair (n,), by candidate.
        gold: What people said (n,).
        metric: How they are compared.
        baseline: What gains are counted from; it is kept unless another is significantly better.
        seed: Deals the pairs to the folds and seeds the resamples.
    """
    fold = deal(gold, seed)
    picks, chosen, raw, judged = Counter[Candidate](), {}, {}, {}
    for number in range(FOLDS):
        inside, name = fold == number, str(number)
        others = {candidate: values[~inside] for candidate, values in similarities.items()}
        pick = choose(others, gold[~inside], metric, baseline, seed)
        picks[pick] += 1
        chosen[name], raw[name] = similarities[pick][inside], similarities[baseline][inside]
        judged[name] = gold[inside]
    gain = compare(chosen, raw, judged, metric, "wmean", seed=seed)
    values = {candidate: metric_value(metric, each, gold) for candidate, each in similarities.items()}
    return Crossvalidated(choose(similarities, gold, metric, baseline, seed), gain, dict(picks), values)


def choose(similarities: Similarities, gold: Vector, metric: Metric, baseline: Candidate, seed: int) -> Candidate:
    """The best candidate, if its lead over the baseline is significant (95 %, paired bootstrap); else the baseline."""
    best = max(similarities, key=lambda candidate: metric_value(metric, similarities[candidate], gold))
    if best == baseline:
        return baseline
    first, second = {"all": similarities[best]}, {"all": similarities[baseline]}
    lead = compare(first, second, {"all": gold}, metric, resamples=INNER_RESAMPLES, seed=seed)
    return best if lead.low > 0 else baseline


def deal(gold: Vector, seed: int) -> npt.NDArray[np.int64]:
    """Number each pair's fold (n,), so that every fold has low and high scores alike."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(gold)), gold))
    fold = np.empty(len(gold), dtype=np.int64)
    rounds = -(-len(gold) // FOLDS)
    fold[order] = np.concatenate([rng.permutation(FOLDS) for _ in range(rounds)])[: len(gold)]
    return fold


def check_pairs(task: PairTask) -> None:
    """Refuse pairs from which nothing can be learned, before minutes of encoding."""
    gold = np.concatenate(list(task.gold.values()))
    if len(gold) < FEWEST_PAIRS:
        raise InputError(
            f"{len(gold)} labelled pair(s) came; cross-validation wants {FEWEST_PAIRS} or more, better some hundred. "
            "Leave them out, and the advice is estimated from the sentences alone."
        )
    if gold.min() == gold.max():
        raise InputError(f"All {len(gold)} labelled pairs have the score {gold[0]:g}: they cannot tell good from bad.")
    rarer = min(int((gold == label).sum()) for label in (0, 1)) if task.metric == "auc" else FOLDS
    if rarer < FOLDS:
        raise InputError(f"Of one of the labels 0 and 1 there are only {rarer} pairs; {FOLDS} or more are needed.")
