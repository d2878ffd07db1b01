"""Where an extra is missing, Python and the command line say which pip line brings it.

All cases run in one other interpreter, in which what the extras install cannot be imported: because it is not there, in a
venv of the core alone (``make test-core``), or else because it is blocked.
"""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertflow

ROOT = Path(__file__).parents[1]
SOURCE = Path(bertflow.__file__).parent
PACKAGES = [
    "accelerate",
    "datasets",
    "faiss",
    "fastapi",
    "matplotlib",
    "mteb",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "prometheus_client",
    "pyarrow",
    "rapidfuzz",
    "ray",
    "sentence_transformers",
    "uvicorn",
]

# What needs an extra in Python: module, function, arguments. MODEL stands for a fitted BertFlow.
MODEL = "MODEL"
CALLS: list[tuple[str, str, str, tuple[Any, ...]]] = [
    ("data", "evaluation.download", "download", ("out", ["STS-B"])),
    ("evaluation", "geometry.lexical", "edit_distances", (["a"], ["b"])),
    ("faiss", "integrations.faiss", "build_index", ("mini", ["one", "two"])),
    ("figures", "paper.figures", "figure1", ("mini", "out.png")),
    ("mteb", "integrations.mteb", "MTEBEncoder", ("mini",)),
    ("mteb", "integrations.mteb_tasks", "load_tasks", (["Banking77Classification.v2"],)),
    ("nli", "paper.nli_tuning", "finetune_nli", ("out",)),
    ("nli", "paper.nli_data", "download_nli", ()),
    ("onnx", "integrations.onnx", "export_onnx", (MODEL, "out")),
    ("parquet", "storage.text_files", "read_sentences", ("texts.parquet",)),
    ("ray", "integrations.ray", "embed", ("texts.txt", "out", MODEL)),
    ("sentence-transformers", "integrations.sentence_transformers_export", "attach", (None, MODEL)),
    ("sentence-transformers", "integrations.sentence_transformers_export", "to_sentence_transformer", (MODEL,)),
    ("serve", "serving", "create_app", ({},)),
]
# And on the command line, in a folder with a saved model, texts.txt and pairs.tsv.
COMMANDS = {
    "data get -o out --tasks STS-B": "data",
    "analyze texts.txt --pairs pairs.tsv": "evaluation",
    "index build texts.txt out": "faiss",
    "reproduce figure1 -o out.png": "figures",
    "mteb --pairs pairs.tsv -o out": "mteb",
    "mteb --tasks Banking77Classification.v2 -o out": "mteb",
    "finetune-nli out": "nli",
    "export onnx model out": "onnx",
    "fit texts.parquet -o out": "parquet",
    "embed texts.txt -m model -o out.parquet": "parquet",
    "ray embed texts.txt out --model model": "ray",
    "export sentence-transformers model out": "sentence-transformers",
    "serve model": "serve",
}


def main() -> None:
    """Try everything without the extras' packages and print what happened; runs in the other interpreter."""
    for package in PACKAGES:
        if importlib.util.find_spec(package):
            sys.modules[package] = None  # type: ignore[assignment]  # Python's own way to forbid an import
    model = _prepare()

    def call(module: str, function: str, arguments: tuple[Any, ...]) -> None:
        made = [model if argument == MODEL else argument for argument in arguments]
        getattr(importlib.import_module(f"bertflow.{module}"), function)(*made)

    def run(command: str) -> None:
        sys.argv = ["bertflow", *command.split()]
        importlib.import_module("bertflow.cli").main()

    outcomes = {f"{module}.{name}": _outcome(call, module, name, arguments) for _, module, name, arguments in CALLS}
    outcomes |= {command: _outcome(run, command) for command in COMMANDS}
    sys.stdout.write(json.dumps(outcomes))


def _prepare() -> Any:
    from bertflow import BertFlow, Standardize
    from bertflow.data import sample_pairs, sample_sentences

    texts, pairs = sample_sentences()[:40], sample_pairs()[:20]
    Path("texts.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = ["sentence1\tsentence2\tscore", *(f"{pair.sentence1}\t{pair.sentence2}\t{pair.score}" for pair in pairs)]
    Path("pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    model = BertFlow.fit(texts, "mini", calibrator=Standardize(), device="cpu")
    model.save_pretrained("model")
    return model


def _outcome(action: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """What an action raised, printed and wrote."""
    out, err = io.StringIO(), io.StringIO()
    raised, message = "", ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            action(*arguments)
        except (Exception, SystemExit) as error:
            raised, message = type(error).__name__, str(error)
    written = [path.name for path in Path.cwd().glob("out*")]
    return {"raised": raised, "message": message, "out": out.getvalue(), "err": err.getvalue(), "written": written}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, __file__],
        cwd=tmp_path_factory.mktemp("extras"),
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(("extra", "name"), [(extra, f"{module}.{name}") for extra, module, name, _ in CALLS])
def test_python_names_the_pip_line(outcomes, extra, name):
    outcome = outcomes[name]
    assert outcome["raised"] == "MissingExtraError", outcome
    assert outcome["message"].endswith(f"pip install 'bertflow[{extra}]'")
    assert outcome["written"] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_names_the_pip_line(outcomes, command):
    outcome = outcomes[command]
    assert (outcome["raised"], outcome["message"]) == ("SystemExit", "1"), outcome
    sentence = rf"bertflow: This needs the package '\w+', .* pip install 'bertflow\[{COMMANDS[command]}\]'\n"
    assert re.fullmatch(sentence, outcome["err"]), outcome  # one line: no traceback, and it came before any work
    assert outcome["out"] == ""
    assert outcome["written"] == []


@pytest.fixture(scope="module")
def declared() -> dict[str, list[str]]:
    """The extras of pyproject.toml with their packages; dev and docs are no user's."""
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    return {name: packages for name, packages in extras.items() if name not in ("dev", "docs")}


def test_every_extra_is_tested_and_in_all(declared):
    extras = sorted(declared.keys() - {"all"})
    assert declared["all"] == [f"bertflow[{','.join(extras)}]"]
    assert sorted({extra for extra, *_ in CALLS}) == sorted(set(COMMANDS.values())) == extras
    modules = {
        "faiss-cpu": "faiss",
        "prometheus-client": "prometheus_client",
        "sentence-transformers": "sentence_transformers",
    }
    packages = {re.split(r"[<>=\[]", line)[0] for extra in extras for line in declared[extra]}
    assert sorted(modules.get(package, package) for package in packages) == PACKAGES


def test_every_pip_line_in_the_code_names_a_declared_extra(declared):
    named = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                named.add(ast.literal_eval([*node.args, *(keyword.value for keyword in node.keywords)][1]))
    assert named <= set(declared)
    assert len(named) > 5


if __name__ == "__main__":
    main()
