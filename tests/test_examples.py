"""Every example runs as its docstring says, offline and in an empty folder."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bertflow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
MODULES = {
    "faiss": "faiss",
    "mteb": "mteb",
    "onnx": "onnxscript",
    "ray": "ray",
    "sentence-transformers": "sentence_transformers",
}


def docstring(example: Path) -> str:
    return ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""


def test_there_are_examples():
    assert len(EXAMPLES) > 5


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_it_is_short_and_says_how_to_run_it(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
    assert re.search(r"^ +pip install (bertflow|\"bertflow\[[\w,-]+\]\")$", docstring(example), re.MULTILINE)
    assert re.search(rf"^ +python examples/{example.name}\b", docstring(example), re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_it_runs(example, tmp_path):
    for extra in re.findall(r'pip install "bertflow\[([\w-]+)\]"', docstring(example)):
        if importlib.util.find_spec(MODULES[extra]) is None:
            pytest.skip(f"needs pip install 'bertflow[{extra}]'")
    place = {"PYTHONPATH": str(Path(bertflow.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert not list(tmp_path.iterdir())  # what it writes, it writes elsewhere and removes
