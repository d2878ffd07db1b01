"""Everything that a report shows, gathered once: the page and the figures only draw it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from bertflow.evaluation import PairTask
from bertflow.evaluation.judgement import Judgement
from bertflow.geometry import Analysis, Spaces, analyze_spaces
from bertflow.report.cosines import Cosines, random_cosines
from bertflow.report.maps import SpaceMap, WordSpace, sentence_map, word_space
from bertflow.report.pairs import (
    PLOTTED,
    Grades,
    LexicalView,
    Move,
    grade,
    joined,
    largest_moves,
    lexical_view,
    neighbour_pairs,
    random_pairs,
)
from bertflow.report.verdict import judge_spaces, what_it_did


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of a corpus' space; parts that could not be had are None, and ``analysis.notes`` says why.

    Args:
        judgement: Does a recipe help on this data, and which one?
        effect: What the recipe on the page did, in sentences.
        analysis: All measures.
        sentences: The map of sentences.
        words: The map of words.
        cosines: Of random pairs, and thresholds.
        grades: What labelled pairs say.
        lexical: Similarity against edit distance.
        moves: The pairs whose rank changed most.
        ranked: Among how many pairs.
    """

    judgement: Judgement
    effect: tuple[str, ...]
    analysis: Analysis
    sentences: SpaceMap
    words: WordSpace | None
    cosines: Cosines
    grades: Grades | None
    lexical: LexicalView | None
    moves: tuple[Move, ...]
    ranked: int


def gather(spaces: Spaces, *, pairs: PairTask | None = None, counts: str | Path | None = None) -> Findings:
    """Look at spaces in every way that a report shows.

    Args:
        spaces: As from ``bertflow.geometry.make_spaces``.
        pairs: Pairs with gold scores.
        counts: A file of ``word count`` or ``token count`` lines.
    """
    grades = None if pairs is None else grade(spaces, pairs)
    analysis = _analysis(spaces, pairs, counts)
    seed = spaces.random_state
    if grades is None:
        ranked = neighbour_pairs(spaces)
        half = PLOTTED // 2
        compared = joined(
            ranked.take(range(0, len(ranked), -(-len(ranked) // half))), random_pairs(spaces, min(half, len(ranked)))
        )
    else:
        ranked = compared = grades.pairs
    return Findings(
        judgement=judge_spaces(spaces, pairs),
        effect=what_it_did(analysis, grades),
        analysis=analysis,
        sentences=sentence_map(spaces),
        words=word_space(spaces, counts),
        cosines=random_cosines(spaces, None if grades is None else grades.pairs),
        grades=grades,
        lexical=lexical_view(compared, seed),
        moves=largest_moves(ranked),
        ranked=len(ranked),
    )


def _analysis(spaces: Spaces, pairs: PairTask | None, counts: str | Path | None) -> Analysis:
    """All measures; without rapidfuzz, those that need no edit distance."""
    if find_spec("rapidfuzz") is not None:
        return analyze_spaces(spaces, pairs=pairs, counts=counts)
    found = analyze_spaces(spaces, counts=counts)
    missing = "Nothing on edit distance: it needs the package 'rapidfuzz': run  pip install 'bertflow[evaluation]'"
    return replace(found, notes=(*(note for note in found.notes if "edit distance" not in note), missing))
