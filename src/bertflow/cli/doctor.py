"""The command `doctor`: what is installed, what is missing, and whether a text can be encoded."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import typer

from bertflow.cli.output import AsJson, print_json, start, table
from bertflow.storage.folders import cache_folder
from bertflow.version import __version__

NEEDED = ("torch", "transformers", "scikit-learn", "numpy", "safetensors", "tokenizers", "huggingface_hub", "typer")
EXTRAS = {  # the package that tells whether an extra is there
    "data": "datasets",
    "evaluation": "rapidfuzz",
    "faiss": "faiss-cpu",
    "figures": "matplotlib",
    "mteb": "mteb",
    "onnx": "onnxruntime",
    "parquet": "pyarrow",
    "ray": "ray",
    "sentence-transformers": "sentence-transformers",
    "serve": "fastapi",
}
PROBE = "The train was late again."


def doctor(as_json: AsJson = False) -> None:
    """Show versions, devices, extras and caches, and test that a text can be encoded; paste this into a bug report.

    bertflow doctor
    """
    start(True)
    found = {
        "bertflow": __version__,
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in NEEDED},
        "extras": {extra: _version(name) for extra, name in EXTRAS.items()},
        "device": _device(),
        "threads": f"{os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}",
        "hub": "offline (HF_HUB_OFFLINE)"
        if os.environ.get("HF_HUB_OFFLINE") == "1"
        else "asked where a model is no folder",
        "cache": _size(cache_folder()),
        "models of the hub": _size(Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")),
        "data sets": os.environ.get("BERTFLOW_DATA", "BERTFLOW_DATA is not set"),
        "self-test": _self_test(),
    }
    if as_json:
        print_json(found)
    else:
        table(None, ("what", "here"), [(name, text) for name, text in _rows(found)], text_last=True)
    if not str(found["self-test"]).startswith("ok"):
        raise typer.Exit(1)


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in found.items():
        if not isinstance(value, dict):
            rows.append((name, str(value)))
            continue
        for package, version in value.items():
            missing = f"missing: pip install 'bertflow[{package}]'" if name == "extras" else "missing"
            rows.append((f"{name[:-1]} {package}", version or missing))
    return rows


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> str:
    from bertflow.arrays import choose_device

    try:
        return str(choose_device())
    except ImportError as error:
        return f"none: {error}"


def _size(folder: Path) -> str:
    """The size of a folder, without reading its files."""
    if not folder.is_dir():
        return f"{folder}: not there yet"
    sizes = [file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return f"{folder}: {sum(sizes) / 1e6:,.0f} MB in {len(sizes):,} files"


def _self_test() -> str:
    """Load what ships inside and encode one text."""
    try:
        from bertflow.model import BertFlow

        begun = time.perf_counter()
        vector = BertFlow.from_pretrained("mini-flow").encode(PROBE)
        return f"ok: {len(vector)} numbers in {time.perf_counter() - begun:.1f} s"
    except Exception as error:  # whatever is broken here is what this command is for
        return f"failed: {type(error).__name__}: {error} ({sys.executable})"
