"""The only place that imports onnxruntime and opens graphs in it: without telemetry, with as many threads as are ours."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bertflow.errors import ModelFolderError, require

# How protobuf writes the place of a tensor that is kept outside the graph: key "location", then the value with its length.
_PLACE = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
_CGROUP = Path("/sys/fs/cgroup/cpu.max")


def import_onnxruntime(module: str = "onnxruntime") -> Any:
    """Import onnxruntime, or a module of it, or say which pip line brings it.

    It would otherwise write a device id and a database under the home folder and try the network.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when it is imported
    return require(module, "onnx")


def has_onnxruntime() -> bool:
    """Whether onnxruntime is installed; it is not imported."""
    try:
        return importlib.util.find_spec("onnxruntime") is not None
    except ValueError:  # sys.modules says that it must not be imported
        return False


def count_threads() -> int:
    """How many threads are ours: OMP_NUM_THREADS, else the processors that this process, and its container, may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = _CGROUP.read_text(encoding="ascii").split()
        return min(processors, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return processors


def open_session(
    path: Path, *, threads: int | None = None, providers: Sequence[str] = ("CPUExecutionProvider",), beside: str = ""
) -> Any:
    """Open a graph in onnxruntime, or say in a sentence why this runtime does not take it.

    Args:
        path: The graph.
        threads: Default: ``count_threads``.
        providers: onnxruntime's execution providers, in order of preference.
        beside: The file beside the graph that may hold its weights; default: the graph's name and ``.data``.
    """
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # its warnings tell of optimisations; errors are raised
    options.intra_op_num_threads = threads or count_threads()
    options.inter_op_num_threads = 1
    refuse_other_files(path, {beside or f"{path.name}.data"})
    try:
        return runtime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # onnxruntime's own kinds have no common name
        raise ModelFolderError(
            f"onnxruntime {runtime.__version__} does not run {path}: {str(error).strip().splitlines()[0]} If it is an old "
            "onnxruntime:  pip install --upgrade onnxruntime"
        ) from error


def refuse_other_files(path: Path, allowed: Collection[str]) -> None:
    """Refuse a graph that takes weights from a file other than those allowed beside it."""
    try:
        graph = path.read_bytes()
    except OSError as error:
        raise ModelFolderError(f"{path} cannot be read ({error.strerror}): copy the whole folder again.") from None
    places = [graph[found.end() : found.end() + found[1][0]] for found in _PLACE.finditer(graph)]
    strange = next((place for place in places if place.decode("utf-8", "replace") not in allowed), None)
    # a place that is written in another way than every writer of ONNX does is not trusted either
    if strange is not None or graph.count(b"location") > len(places):
        raise ModelFolderError(
            f"{path} takes weights from another file, {(strange or b'?').decode('utf-8', 'replace')!r:.80}: do not trust this "
            "folder. Export the model again."
        )
