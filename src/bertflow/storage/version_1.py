"""Model folders of bertflow 0.1 in today's form: an encoder and a calibrator become a list of parts."""

from __future__ import annotations

from typing import Any

from bertflow.arrays import Matrix
from bertflow.data import MINI, MINI_VERSION

_CLASSES = {
    "transformers": "Encoder",
    "static": "Encoder",
    "joined": "Encoder",
    "sentence-transformers": "SentenceTransformerEncoder",
    "word-vectors": "AveragedWordVectors",
}
_TOKENS = {"class": "TokenTable", "params": {}}


def upgraded(config: dict[str, Any], arrays: dict[str, Matrix]) -> tuple[dict[str, Any], dict[str, Matrix]]:
    """Return (config, arrays) of version 1 as version 2 would have them; a calibrator alone stays as it is."""
    known = config.get("encoder")
    if known is None:
        return config, arrays
    kind, calibrator = known.get("kind"), config["calibrator"]
    encoder = {**known.get("contextual", known)}
    if encoder.pop("kind", None) and kind in _CLASSES:  # an encoder class of the user's own has to be given again
        encoder["class"] = _CLASSES[kind]
    encoder["name"] = MINI_VERSION if encoder["name"] == MINI else encoder["name"]
    if kind == "joined":
        parts, arrays = _joined(known["contextual"], calibrator, arrays)
    else:
        view = {**_TOKENS, "dim": known["dim"]} if kind == "static" else _pooled(known["dim"])
        parts = [{"view": view, "calibrator": calibrator, "weight": 1.0, "scale": 1.0, "folder": "encoder"}]
        arrays = {f"0.{name}": array for name, array in arrays.items()}
    if kind == "static":
        encoder |= {"dim": None, "fingerprint": None}
    bundled = config.get("bundled_encoder", False) and kind != "static"
    return {**config, "encoder": encoder, "parts": parts, "bundled_encoder": bundled}, arrays


def _joined(
    words: dict[str, Any], both: dict[str, Any], arrays: dict[str, Matrix]
) -> tuple[list[dict[str, Any]], dict[str, Matrix]]:
    """Split the calibrator of tokens and words in two."""
    params, scales = both["params"], arrays["scales"]
    size = params["flow_dims"]
    rest = both["n_features_in"] - size
    whitening = {"class": "Whitening", "params": {"shrinkage": params["shrinkage"]}}
    flow = {"class": "FlowCalibrator", "params": {key: params[key] for key in ("preset", "random_state")}}
    parts: list[dict[str, Any]] = [
        {"view": {**_TOKENS, "dim": rest}, "calibrator": _sized(whitening, rest), "folder": "encoder/static"},
        {"view": _pooled(size, words["pooling"], words["words_only"]), "calibrator": _sized(flow, size)},
    ]
    weights = (1.0, params["flow_weight"])
    parts = [part | {"weight": weights[i], "scale": float(scales[i])} for i, part in enumerate(parts)]
    places = {"whitening": 0, "flow": 1}
    named = (name.partition(".") for name in arrays if "." in name)
    return parts, {f"{places[head]}.{rest}": arrays[f"{head}.{rest}"] for head, _, rest in named}


def _pooled(dim: int, pooling: str | None = None, words_only: bool | None = None) -> dict[str, Any]:
    return {"class": "Pooled", "params": {"pooling": pooling, "words_only": words_only}, "dim": dim}


def _sized(settings: dict[str, Any], size: int) -> dict[str, Any]:
    return settings | {"n_features_in": size, "n_features_out": size}
