"""One judge: does a recipe help, on this encoder, with this text, for this use? ``judge`` answers, with labels or without."""

from bertflow.evaluation.judgement.judging import judge, judge_model, judge_scores, purpose_of, write_pairs_to_label
from bertflow.evaluation.judgement.result import PURPOSES, Gain, Judgement, Ranked
from bertflow.evaluation.judgement.seen import RECIPES

__all__ = [
    "PURPOSES",
    "RECIPES",
    "Gain",
    "Judgement",
    "Ranked",
    "judge",
    "judge_model",
    "judge_scores",
    "purpose_of",
    "write_pairs_to_label",
]
