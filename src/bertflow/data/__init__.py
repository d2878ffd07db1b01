"""What ships inside: a small frozen BERT, a flow for it, and sample text of our own (see DATA_CARD.md beside this file)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

MINI = "mini"
MINI_FLOW = "mini-flow"
SHIPPED = (MINI_FLOW,)  # models of mini that were fitted on general text
MINI_VERSION = "mini-1"  # what saved models name: another mini would give other vectors
_HERE = Path(__file__).parent


def mini_folder() -> Path:
    """Return the folder of the mini encoder."""
    return _HERE / MINI


def shipped_model(name: str) -> Path | None:
    """Return the folder of a model that ships inside, ``"mini-flow"`` (results/fit_mini_flow.py); None for other names."""
    return _HERE / name if name in SHIPPED else None


def sample_sentences() -> list[str]:
    """Return over 4 000 unlabelled sentences from twelve domains, for fitting."""
    return (_HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class GradedPair:
    """Two sentences and how alike they are.

    Args:
        sentence1: One sentence.
        sentence2: The other.
        score: 0 (different topics) to 5 (same meaning), the mean of two grades.
        domain: Such as ``"news"``.
        kind: Why it is there: graded, paraphrase, negation, roles, decisive, homonym or detail.
    """

    sentence1: str
    sentence2: str
    score: float
    domain: str
    kind: str


def sample_pairs() -> list[GradedPair]:
    """Return over 600 graded pairs, easy and hard."""
    with (_HERE / "pairs.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            GradedPair(row["sentence1"], row["sentence2"], float(row["score"]), row["domain"], row["kind"])
            for row in rows
        ]
