"""Judges know no method: all but the comparison of recipes import the ground floor and storage alone."""

import ast
from pathlib import Path

import pytest

import bertflow.evaluation

HOUSE = Path(bertflow.evaluation.__file__).parent
ALLOWED = {"errors", "arrays", "moments", "texts", "data", "storage", "evaluation"}
ABOVE = {"comparison.py", "judgement/judging.py", "judgement/seen.py"}  # they fit recipes


@pytest.mark.parametrize("file", sorted(file.relative_to(HOUSE).as_posix() for file in HOUSE.rglob("*.py")))
def test_what_a_judge_imports(file):
    tree = ast.parse((HOUSE / file).read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    rooms = {module.split(".")[1] for module in modules if module.startswith("bertflow.")}
    assert "bertflow" not in modules
    assert file in ABOVE or rooms <= ALLOWED
