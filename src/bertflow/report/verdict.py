"""Does calibration help on this data? The judgement on the page, beside what this recipe did to these vectors."""

from __future__ import annotations

from dataclasses import dataclass

from bertflow.evaluation import PairTask
from bertflow.evaluation.judgement import RECIPES, Judgement, judge
from bertflow.geometry import Analysis, Spaces
from bertflow.recipes import TABLE
from bertflow.report.pairs import Grades

METRICS = {"spearman": "Spearman ×100", "pearson": "Pearson ×100", "auc": "AUC ×100"}
TONES = {"use": "better", "leave": "unproven", "cannot tell": "unclear", "too little text": "unclear"}


@dataclass(frozen=True)
class Origin:
    """Where things are from, as a command line names them.

    Args:
        sentences: The file of sentences.
        title: What the page calls the corpus; by default the file.
    """

    sentences: str = "your-sentences.txt"
    title: str | None = None


def judge_spaces(spaces: Spaces, pairs: PairTask | None) -> Judgement:
    """Judge the encoder on the corpus, the spaces' own recipe among those that are weighed."""
    own = spaces.model.recipe
    recipes = (*RECIPES, own) if own and any(recipe.match(own) is not None for recipe in TABLE.values()) else RECIPES
    return judge(spaces.sentences, spaces.encoder, labels=pairs, recipes=recipes, random_state=spaces.random_state)


def what_it_did(analysis: Analysis, grades: Grades | None) -> tuple[str, ...]:
    """Say in sentences what the page's own recipe did to the space, and to the labelled pairs."""
    before, after = analysis.isotropy.before, analysis.isotropy.after
    geometry = (
        f"The mean cosine of two random sentences goes from {_cosine(before.mean_cosine)} to {_cosine(after.mean_cosine)}, "
        f"the effective rank from {before.effective_rank:.0f} of {before.dim} to {after.effective_rank:.0f} of {after.dim}."
    )
    if grades is None:
        return (
            f"{geometry} But geometry alone cannot prove that sentences which mean the same come closer: only pairs that "
            "people have scored can.",
        )
    change, score = grades.change, grades.score
    measured = (
        f"With {analysis.settings['recipe']}, {METRICS[score.before.metric]} on {score.before.pairs:,} labelled pairs goes "
        f"from {score.before.value:.1f} to {score.after.value:.1f}: a change of {_signed(change.difference)} "
        f"({100 * change.confidence:g} % interval {_signed(change.low)} to {_signed(change.high)}, "
        f"p {_p_value(change.p_value)}, paired bootstrap)."
    )
    return measured, geometry


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def _cosine(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _p_value(p: float) -> str:
    return "< 0.01" if p < 0.01 else f"= {p:.2f}"
