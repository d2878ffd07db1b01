"""The only module that knows the disk format and the hub: config.json + model.safetensors + README.md [+ encoder/]."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import yaml
from huggingface_hub import snapshot_download

from bertflow.arrays import Matrix
from bertflow.atomic import atomic_folder, recover
from bertflow.errors import ModelFolderError
from bertflow.version import __version__

FORMAT = "bertflow"
FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD, ENCODER = "config.json", "model.safetensors", "README.md", "encoder"


def save(
    folder: str | Path,
    config: dict[str, Any],
    arrays: dict[str, Matrix],
    write_encoder: Callable[[Path], None] | None = None,
) -> Path:
    """Write a model folder whole or not at all.

    Args:
        folder: Where; an earlier bertflow model there is replaced, anything else is left alone and refused.
        config: Settings as JSON: ``encoder``, ``calibrator``, ``training``.
        arrays: The calibrator's arrays.
        write_encoder: Writes the encoder into the folder it is given, to bundle it.
    """
    target = Path(folder)
    if target.exists() and not _is_ours(target):
        raise ModelFolderError(
            f"{target} exists and is not a bertflow model; nothing was written. Give another folder or empty this one."
        )
    # safetensors writes the memory as it lies: a transposed array would come back scrambled
    straight = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    weights = safetensors.numpy.save(straight, metadata={"format": FORMAT})
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "bertflow_version": __version__,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "bundled_encoder": write_encoder is not None,
    }
    with atomic_folder(target) as temporary:
        if write_encoder:
            write_encoder(temporary / ENCODER)
        (temporary / WEIGHTS).write_bytes(weights)
        (temporary / CONFIG).write_text(json.dumps(head | config, indent=2) + "\n", encoding="utf-8")
        (temporary / CARD).write_text(model_card(config), encoding="utf-8")
    return target


def load(folder: str | Path) -> tuple[dict[str, Any], dict[str, Matrix]]:
    """Read (config, arrays) of a model folder, refusing with a sentence what is damaged, foreign or newer."""
    folder = Path(folder)
    config = load_config(folder)
    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing: copy the whole folder again, or fit the model anew.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != config.get("weights_sha256"):
        raise ModelFolderError(
            f"{path} is damaged or not the file that belongs to its {CONFIG} (the checksum differs): copy the folder again, "
            "or fit the model anew."
        )
    try:
        return config, safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise ModelFolderError(f"{path} is not a safetensors file ({error}): fit the model anew.") from None


def load_config(folder: str | Path) -> dict[str, Any]:
    """Read and check a model folder's config.json."""
    recover(folder)
    path = Path(folder) / CONFIG
    if not path.is_file():
        what = "holds no config.json" if Path(folder).is_dir() else "does not exist"
        raise ModelFolderError(f"{folder} {what}: it is not a bertflow model. `bertflow fit` makes one.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFolderError(f"{path} is damaged ({error}): copy the folder again, or fit the model anew.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        kind = config.get("model_type", "another program") if isinstance(config, dict) else "another program"
        raise ModelFolderError(
            f"{path} was not written by bertflow but by {kind}. To fit a flow on that model: "
            f"BertFlow.fit(sentences, encoder={str(folder)!r})."
        )
    version = config.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFolderError(
            f"{path} has format version {version}, written by bertflow {config.get('bertflow_version')}; this is bertflow "
            f"{__version__}, which reads up to {FORMAT_VERSION}. Run  pip install --upgrade bertflow"
        )
    return config


def locate(path_or_id: str | Path, **hub: Any) -> Path:
    """Return the local folder of a model, downloading it from the Hugging Face hub when it is an id.

    Args:
        path_or_id: A folder, or an id such as ``"someone/bert-base-uncased-flow"``.
        hub: ``revision``, ``token``, ``cache_dir``, ``local_files_only``.
    """
    folder = Path(path_or_id)
    recover(folder)
    text = str(path_or_id)
    if folder.is_dir() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        return folder
    try:
        return Path(snapshot_download(text, **hub))
    except Exception as error:  # the hub client raises many kinds, offline alone gives four
        raise ModelFolderError(
            f"{text!r} is not a folder here and could not be had from the Hugging Face hub (offline, misspelt or private?): "
            f"{(str(error).strip() or type(error).__name__).splitlines()[0]}"
        ) from error


def model_card(config: dict[str, Any]) -> str:
    """Return the README.md of a saved model, with the YAML that the hub reads."""
    encoder, calibrator, training = config["encoder"], config["calibrator"], config.get("training", {})
    front = {
        "library_name": "bertflow",
        "pipeline_tag": "sentence-similarity",
        "tags": ["bertflow", "bert-flow", "sentence-embeddings", "feature-extraction", calibrator["class"]],
        **({"base_model": encoder["name"]} if _is_hub_id(encoder["name"]) else {}),
    }
    settings = "\n".join(f"| {k} | {v} |" for k, v in {**calibrator["params"], **training}.items() if v is not None)
    return f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# {Path(encoder["name"]).name} + {calibrator["class"]}

Sentence vectors of the frozen encoder `{encoder["name"]}` (pooling: {encoder.get("pooling", "its own")}), calibrated without
labels by bertflow: a fixed map, fitted on unlabelled sentences and applied after pooling, so that cosine tells similar from
dissimilar sentences better. Whether it does on your text: `bertflow compare`.

```python
from bertflow import BertFlow

model = BertFlow.from_pretrained("this folder")
model.encode("One sentence.")
```

| setting | value |
|---|---|
{settings}
"""


def _is_hub_id(name: str) -> bool:
    """Whether a name can be a model on the hub: no local path, not ours."""
    return name != "mini" and name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


def _is_ours(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        return json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        return False
