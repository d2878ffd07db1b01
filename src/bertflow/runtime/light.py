"""Saved models without torch: what runs the parts of a folder with numpy, tokenizers and, for a transformer, onnxruntime."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bertflow.arrays import Matrix
from bertflow.data import MINI, MINI_VERSION, mini_folder
from bertflow.errors import BertflowError, InputError
from bertflow.runtime.graph import GRAPH, SETTINGS, TOKENIZER, GraphEncoder, GraphReading
from bertflow.runtime.portable import PortableCalibrator
from bertflow.runtime.sessions import has_onnxruntime
from bertflow.runtime.tokens import CLASSES, LightTable
from bertflow.storage import model_folder
from bertflow.storage.checksums import digest_states
from bertflow.version import __version__

Config: TypeAlias = dict[str, Any]
View: TypeAlias = "LightTable | GraphReading"

TORCH, LIGHT = "torch", "light"
RUNTIMES = (TORCH, LIGHT)


class LightParts:
    """The parts of a saved model, for encoding alone.

    Args:
        folder: The model's folder.
        config: Its settings.
        arrays: Its calibrators' arrays.
        device: What the user asked for.

    Raises:
        InputError: Where they need torch, with the reason.

    Attributes:
        runtime: ``"onnxruntime"`` where a transformer runs, else ``"numpy"``.
        dim: Dimensions of the vectors.
    """

    def __init__(self, folder: Path, config: Config, arrays: dict[str, Matrix], device: str | None = None) -> None:
        self._folder, self._config = folder, config
        model_folder.refuse_arrays_of_no_part(config, arrays)
        if device not in (None, "cpu"):
            raise InputError(f"The device {device!r} needs torch.")
        self._encoder: GraphEncoder | None = None
        self._views = [self._view(i, device) for i in range(len(config["parts"]))]
        states = [model_folder.arrays_of_part(arrays, i) for i in range(len(self._views))]
        self._calibrators = [self._calibrator(i, state) for i, state in enumerate(states)]
        self._scales = [np.float32(part["scale"]) for part in config["parts"]]
        self.runtime = "numpy" if self._encoder is None else "onnxruntime"
        self.dim = sum(calibrator.n_features_out_ for calibrator in self._calibrators)
        for i, state in enumerate(states):
            self._fold(i, state)

    def encode(self, texts: Sequence[str], *, batch_size: int | None = None, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to the parts' calibrated vectors, side by side (n, k)."""
        readings = list(dict.fromkeys(view for view in self._views if isinstance(view, GraphReading)))
        read: list[Matrix] = []
        if self._encoder is not None:
            options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
            read = self._encoder.encode_views(texts, readings, **options)
        found = []
        for i, view in enumerate(self._views):
            vectors = view.encode(texts) if isinstance(view, LightTable) else read[readings.index(view)]
            if not self._folded(i):
                vectors = self._calibrators[i].transform(vectors)
                vectors = vectors if self._scales[i] == 1 else self._scales[i] * vectors
            found.append(vectors)
        return found[0] if len(found) == 1 else np.hstack(found)

    def _view(self, i: int, device: str | None) -> View:
        """Return the view of a part, or raise."""
        known = self._config["parts"][i]["view"]
        if known["class"] in CLASSES:
            return LightTable(model_folder.view_folder(self._folder, self._config, i), known["class"])
        if known["class"] != "Pooled":
            raise InputError(f"The view {known['class']} needs torch.")
        encoder = self._config["encoder"]
        params = known["params"]
        if self._encoder is None:
            self._encoder = GraphEncoder(self._graph_folder(encoder, device))
        reading = GraphReading(
            params["pooling"] or encoder["pooling"],
            bool(encoder.get("words_only", False) if params["words_only"] is None else params["words_only"]),
        )
        if not self._encoder.gives(reading.pooling) or self._encoder.dim != known["dim"]:
            raise InputError(f"The graph does not have what the pooling {reading.pooling!r} reads: this needs torch.")
        return reading

    def _graph_folder(self, encoder: Config, device: str | None) -> Path:
        """Return where the graph of the model's encoder is, or raise."""
        if encoder.get("class") != "Encoder":
            raise InputError(f"The encoder {encoder['name']!r} needs torch.")
        if not has_onnxruntime():
            raise InputError("A transformer without torch needs onnxruntime: run  pip install 'bertflow[onnx]'")
        if device is None and has_accelerator():
            raise InputError("There is a GPU, on which torch is faster; say device='cpu' for onnxruntime.")
        own = {f"{model_folder.GRAPH}/{name}" for name in (GRAPH, SETTINGS, TOKENIZER)}
        if own <= set(self._config.get("sha256", ())):
            return self._folder / model_folder.GRAPH
        if encoder["name"] not in (MINI, MINI_VERSION) or self._config.get("bundled_encoder") or Path(MINI).is_dir():
            raise InputError("The model was saved without a graph: save it with runtime='onnx', or use torch.")
        shipped = mini_folder()
        known = json.loads((shipped / SETTINGS).read_text(encoding="utf-8"))["fingerprints"]
        if encoder.get("fingerprint") not in known:
            raise InputError("The model was fitted on another mini encoder, or with other settings of it.")
        return shipped

    def _calibrator(self, i: int, arrays: dict[str, Matrix]) -> PortableCalibrator:
        known = self._config["parts"][i]
        calibrator = PortableCalibrator(known["calibrator"], arrays)
        if calibrator.n_features_in_ != known["view"]["dim"]:
            raise InputError("View and calibrator do not fit together.")
        return calibrator

    def _fold(self, i: int, arrays: dict[str, Matrix]) -> None:
        """Fold an affine calibrator, and the scale, into a table of tokens."""
        view = self._views[i]
        if self._folded(i) and isinstance(view, LightTable):
            kernel = arrays["kernel"].astype(np.float64) * float(self._scales[i])
            view.fold(kernel, -arrays["mean"] @ kernel)

    def _folded(self, i: int) -> bool:
        view = self._views[i]
        return isinstance(view, LightTable) and view.kind != "Usif" and self._calibrators[i].is_affine

    @cached_property
    def fingerprint(self) -> str | None:
        """As ``BertFlow.fingerprint`` tells it; None where only the loaded parts can tell, of a folder of another version."""
        if self._config.get("format_version") == 1 or self._config["bertflow_version"] != __version__:
            return None
        parts, (_, arrays) = self._config["parts"], model_folder.load(self._folder)
        prints = [
            view.fingerprint if isinstance(view, LightTable) else self._print_of(part["view"])
            for view, part in zip(self._views, parts, strict=True)
        ]
        states = [
            (part["calibrator"], model_folder.arrays_of_part(arrays, i), float(part["scale"]))
            for i, part in enumerate(parts)
        ]
        return hashlib.sha256(" ".join([*prints, digest_states(states)]).encode()).hexdigest()[:32]

    def _print_of(self, view: Config) -> str:
        text = json.dumps([self._config["encoder"]["fingerprint"], view], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __repr__(self) -> str:
        told = []
        for part in self._config["parts"]:
            view, calibrator = part["view"], part["calibrator"]
            told.append(f"{_called(view)} -> {_called(calibrator)}")
        return f"encoder={self._config['encoder']['name']!r}, parts=[{', '.join(told)}]"


def _called(known: Config) -> str:
    params = ", ".join(f"{name}={value!r}" for name, value in known["params"].items() if value is not None)
    return f"{known['class']}({params})"


def has_accelerator() -> bool:
    """Whether torch is here and would most likely run on something faster than the CPU; nothing is imported for it."""
    if importlib.util.find_spec("torch") is None:
        return False
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    devices = Path("/dev")
    return apple or (devices / "kfd").exists() or any(devices.glob("nvidia[0-9]*"))


def choose_runtime(
    folder: Path, config: Config, arrays: dict[str, Matrix], *, device: str | None, runtime: str | None
) -> LightParts | None:
    """Return what runs a model without torch, or None for torch.

    Args:
        folder: The model's folder.
        config: Its settings.
        arrays: Its calibrators' arrays.
        device: What the user asked for.
        runtime: ``"light"``, ``"torch"``, or None for the lightest that is here.
    """
    if runtime not in (None, *RUNTIMES):
        raise InputError(f"Unknown runtime {runtime!r}; choose 'light' or 'torch', or leave it out for the lightest.")
    if runtime == TORCH:
        return None
    try:
        return LightParts(folder, config, arrays, device)
    except (BertflowError, AttributeError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
        if runtime == LIGHT:  # else torch tells what is wrong, if anything is
            raise InputError(f"The model in {folder} cannot run without torch: {error}") from error
        return None
