"""A report that may be shared although its text may not: every sentence is called by a number."""

from __future__ import annotations

from dataclasses import replace

from bertflow.report.findings import Findings


def hide_texts(findings: Findings) -> Findings:
    """Return the findings with "sentence 12" in place of each text, the same number wherever the text stands.

    Words of the vocabulary are still named, in the order of their frequency; no sentence can be told from them.
    """
    numbers: dict[str, int] = {}

    def name(text: str) -> str:
        return f"sentence {numbers.setdefault(text, len(numbers) + 1)}"

    labels = [name(text) for text in findings.sentences.labels]
    odd = tuple(replace(one, text=name(one.text)) for one in findings.analysis.least_likely)
    lexical = findings.lexical
    if lexical is not None:
        first, second = [name(text) for text in lexical.pairs.first], [name(text) for text in lexical.pairs.second]
        lexical = replace(lexical, pairs=replace(lexical.pairs, first=first, second=second))
    return replace(
        findings,
        sentences=replace(findings.sentences, labels=labels),
        analysis=replace(findings.analysis, least_likely=odd),
        lexical=lexical,
        moves=tuple(replace(move, first=name(move.first), second=name(move.second)) for move in findings.moves),
    )
