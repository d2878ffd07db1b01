"""Export to ONNX: a whole model of any recipe (token ids → calibrated vectors) in one file, or its calibrator alone.

Nothing is left behind that does not agree with PyTorch: the exported folder is loaded as a user would load it, run on
texts of many lengths in batches of many sizes, and compared before it takes its place. ``OnnxModel`` runs it without torch.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix, cosine_of_pairs
from bertflow.calibrators import Calibrator
from bertflow.data import sample_pairs, sample_sentences
from bertflow.encoders.base import exported_encoder
from bertflow.errors import InputError, ModelFolderError, TruncationWarning, require
from bertflow.evaluation import metric_value
from bertflow.integrations.onnx_graph import WholeModel, calibrator_module
from bertflow.integrations.onnx_model import (
    CALIBRATOR,
    CONFIG,
    FORMAT,
    FORMAT_VERSION,
    GRAPH,
    TEXT,
    TOKENIZER,
    OnnxCalibrator,
    OnnxModel,
    read_config,
)
from bertflow.model import BertFlow
from bertflow.runtime.graph_export import HEAD, OPSET, quiet_exporter, write_graph
from bertflow.runtime.sessions import import_onnxruntime
from bertflow.storage.atomic import atomic_folder
from bertflow.storage.checksums import checksum, sealed
from bertflow.version import __version__


@dataclass(frozen=True)
class Int8Loss:
    """What eight bits cost, measured on the pairs that ship with bertflow.

    Args:
        mean_cosine: Mean cosine between a text's float32 vector and its int8 vector.
        least_cosine: The smallest of them.
        spearman_float32: Spearman ×100 of float32 cosines with the pairs' grades.
        spearman_int8: The same of int8 cosines.
    """

    mean_cosine: float
    least_cosine: float
    spearman_float32: float
    spearman_int8: float


@dataclass(frozen=True)
class OnnxExport:
    """What was written.

    Args:
        folder: Where.
        kind: ``"text"`` (the whole model) or ``"calibrator"``.
        megabytes: Of the graph with its weights.
        difference: Largest distance from PyTorch's vector (float32), as a share of the vectors' typical length.
        int8: What quantising cost; None without it.
    """

    folder: str
    kind: str
    megabytes: float
    difference: float
    int8: Int8Loss | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def export_onnx(
    model: BertFlow | Calibrator, folder: str | Path, *, int8: bool = False, tolerance: float = 1e-4
) -> OnnxExport:
    """Write a model, or a calibrator alone, as ONNX; whole and checked, or not at all.

    Args:
        model: A ``BertFlow``, or a fitted calibrator.
        folder: Where; an earlier export there is replaced, anything else is left alone and refused.
        int8: Quantise the transformer's weights to eight bits: a quarter of the size. The calibrator stays float32.
        tolerance: Largest distance from PyTorch's vector to accept, as a share of the vectors' typical length.

    Raises:
        InputError: Where it cannot be expressed in ONNX, or the result differs from PyTorch.
    """
    if not isinstance(model, BertFlow | Calibrator):
        raise InputError(f"What is exported is a BertFlow or a fitted calibrator; got {type(model).__name__}.")
    if int8 and isinstance(model, Calibrator):
        raise InputError("A calibrator alone is small and stays in float32; int8 is for a whole model.")
    if int8 and not _needs_encoder(model):
        raise InputError("int8 is for a transformer's weights, and this model runs none: leave int8 out.")
    for module in ("onnx", "onnxscript"):
        require(module, "onnx")
    import_onnxruntime()
    _refuse_foreign(Path(folder))
    with atomic_folder(folder) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # some of the texts to compare are too long on purpose
        difference = _write_model(model, place) if isinstance(model, BertFlow) else _write_calibrator(model, place)
        if not difference <= tolerance:
            raise InputError(
                f"In ONNX a vector differs from PyTorch's by {difference:.1e} of its length, and at most {tolerance:.0e} was "
                "wanted: nothing was written. If that is good enough for you, raise the tolerance."
            )
        loss = _quantise(place) if int8 else None
        size = sum(file.stat().st_size for file in place.glob(f"{GRAPH}*"))
        return OnnxExport(str(folder), read_config(place)["kind"], size / 1e6, difference, loss)


def _write_model(model: BertFlow, folder: Path) -> float:
    """Write graph, tokenizer and config; return how far the result is from PyTorch."""
    reader, model = _reader(model), _on_cpu(model)
    inputs = {name: torch.ones((2, 3), dtype=torch.long) for name in ("input_ids", "attention_mask")}
    module = WholeModel(model, reader.pad_token_id)
    write_graph(module, inputs, ("batch", "tokens"), folder / GRAPH, model.encoder.name)
    reader.tokenizer.save(str(folder / TOKENIZER))
    settings = {
        "kind": TEXT,
        "name": model.encoder.name,
        "recipe": model.recipe,
        "max_length": reader.max_length,
        "pad_token_id": reader.pad_token_id,
        "calibrator": " beside ".join(type(part.calibrator).__name__ for part in model.parts),
        "dim": model.dim,
    }
    _write_config(folder, settings)
    texts = _texts()
    if _needs_encoder(model) and not all(part.view.needs_encoder for part in model.parts):
        texts = [text for text in texts if len(reader.tokenizer.encode(text).ids) <= reader.max_length]
    expected = model.encode(texts)
    runtime, differences = OnnxModel.from_pretrained(folder), []
    for runtime.token_budget in (1, 100, 2048):  # one text a batch, a few, many
        differences.append(_difference(lambda: runtime.encode(texts), expected))
    return max(differences)


def _write_calibrator(calibrator: Calibrator, folder: Path) -> float:
    """Write graph and config; return how far the result is from PyTorch."""
    check_is_fitted(calibrator)
    name, dim, out = type(calibrator).__name__, calibrator.n_features_in_, calibrator.dim
    write_graph(
        calibrator_module(calibrator), {"sentence_embedding": torch.zeros(2, dim)}, ("batch",), folder / GRAPH, name
    )
    _write_config(folder, {"kind": CALIBRATOR, "calibrator": name, "dim_in": dim, "dim": out})
    latents = np.random.default_rng(0).normal(size=(100, out))
    vectors = calibrator.inverse_transform(latents).astype(np.float32)  # such as it was fitted on
    expected = calibrator.transform(vectors)
    runtime, parts = OnnxCalibrator.from_pretrained(folder), (vectors[:1], vectors[1:3], vectors[3:])
    return _difference(lambda: np.concatenate([runtime.transform(part) for part in parts]), expected)


def _needs_encoder(model: BertFlow) -> bool:
    return any(part.view.needs_encoder for part in model.parts)


def _on_cpu(model: BertFlow) -> BertFlow:
    """Return the model with a float32 copy of its encoder on the CPU, which is what is exported and compared with."""
    if not _needs_encoder(model):
        return model
    encoder: Any = copy.copy(model.encoder)
    encoder.model = copy.deepcopy(encoder.model).float().cpu().eval()
    if hasattr(encoder, "device"):
        encoder.device = torch.device("cpu")
    parts = [replace(part, view=copy.copy(part.view)) for part in model.parts]
    for part in parts:
        part.view.encoder = encoder
    return BertFlow(encoder, parts=parts, recipe=model.recipe)


class _Reader(NamedTuple):
    """How an exported model reads text.

    Args:
        tokenizer: A ``tokenizers.Tokenizer``, which cuts and pads nothing.
        max_length: Tokens that it reads.
        pad_token_id: The token that stands where a text has none at all.
    """

    tokenizer: Any
    max_length: int
    pad_token_id: int


def _reader(model: BertFlow) -> _Reader:
    """Return how a model reads text, or refuse one that reads no tokens."""
    if not _needs_encoder(model):
        return _reader_of_a_table(model)
    encoder: Any = exported_encoder([part.view for part in model.parts], model.encoder)
    theirs: Any = getattr(encoder, "model", None)
    if hasattr(encoder, "encode_views"):
        return _Reader(_plain(encoder.tokenizer, encoder.name), encoder.max_length, encoder.tokenizer.pad_token_id)
    if not hasattr(theirs, "get_embedding_dimension"):
        raise InputError(
            f"{type(encoder).__name__} is no transformer, so it has no ONNX form. Its calibrator alone can be exported."
        )
    if theirs.default_prompt_name is not None:
        raise InputError(
            f"{encoder.name!r} puts the prompt {theirs.default_prompt_name!r} before each text, which the exported model "
            "would not. Set its default_prompt_name to None and fit again, or export the calibrator alone."
        )
    limit = int(min(theirs.max_seq_length or theirs.tokenizer.model_max_length, 10**6))
    return _Reader(_plain(theirs.tokenizer, encoder.name), limit, theirs.tokenizer.pad_token_id)


def _reader_of_a_table(model: BertFlow) -> _Reader:
    """Return how a model without a transformer reads text: all of it."""
    table = model.parts[0].view.as_table()
    if table is None:
        raise InputError(
            f"{type(model.parts[0].view).__name__} has no ONNX form. Its calibrator alone can be exported."
        )
    special = (number for number, token in table.tokenizer.get_added_tokens_decoder().items() if token.special)
    return _Reader(copy.deepcopy(table.tokenizer), 10**6, next(special, 0))


def _plain(tokenizer: Any, name: str) -> Any:
    """Return the fast tokenizer without the truncation and padding of its last call."""
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(
            f"{name!r} reads text with a {type(tokenizer).__name__}, which cannot be written as {TOKENIZER}; only a "
            "transformer with a fast tokenizer can be exported. Its calibrator alone can be."
        )
    plain = copy.deepcopy(tokenizer.backend_tokenizer)
    plain.no_truncation()
    plain.no_padding()
    return plain


def _texts() -> list[str]:
    """Return texts of all lengths, from nothing to more than most models read."""
    sentences = sample_sentences()
    odd = ["", "   ", "a", "Grüße, привет, こんにちは 🙂", "[CLS] <s>"]
    return odd + sentences[::200] + [" ".join(sentences[:many]) for many in (2, 4, 8, 40)]


def _difference(run: Callable[[], Matrix], expected: Matrix) -> float:
    """Largest distance of two vectors as a share of their typical length.

    Not of single entries: whitening amplifies the rounding of a weak direction, which matters little for the vector.
    """
    try:
        got = run().astype(np.float64)
    except Exception as error:  # onnxruntime's own kinds have no common name
        raise InputError(f"onnxruntime does not run what was exported: {str(error).strip().splitlines()[0]}") from error
    if got.shape != expected.shape:
        raise InputError(f"What was exported gives vectors of shape {got.shape}; PyTorch gives {expected.shape}.")
    length = float(np.sqrt(np.square(expected, dtype=np.float64).sum(1).mean()))
    return float(np.linalg.norm(got - expected, axis=1).max()) / (length or 1.0)


def _quantise(folder: Path) -> Int8Loss:
    """Make the folder's graph an int8 one, and measure what that costs."""
    if len(list(folder.glob(f"{GRAPH}*"))) > 1:
        raise InputError("The model has more than 2 GB of weights, which onnxruntime cannot quantise; leave int8 out.")
    pairs = sample_pairs()
    texts = [text for pair in pairs for text in (pair.sentence1, pair.sentence2)]
    before = OnnxModel.from_pretrained(folder).encode(texts).astype(np.float64)
    library, quantization = require("onnx", "onnx"), import_onnxruntime("onnxruntime.quantization")
    graph = library.load(folder / GRAPH)
    del graph.graph.value_info[:]  # the quantiser turns weights over, and then their noted shapes are wrong
    kept = [node.name for node in graph.graph.node if node.name.startswith(HEAD)]
    with quiet_exporter():
        quantization.quantize_dynamic(graph, folder / GRAPH, per_channel=True, nodes_to_exclude=kept)
    _write_config(folder, read_config(folder), "int8")
    after = OnnxModel.from_pretrained(folder).encode(texts).astype(np.float64)
    cosines, gold = cosine_of_pairs(before, after), np.array([pair.score for pair in pairs])
    spearman = [
        metric_value("spearman", cosine_of_pairs(v[::2], v[1::2]).astype(np.float64), gold) for v in (before, after)
    ]
    return Int8Loss(float(cosines.mean()), float(cosines.min()), *spearman)


def _write_config(folder: Path, settings: dict[str, Any], precision: str = "float32") -> None:
    files = sorted(file for file in folder.iterdir() if file.name != CONFIG)
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "bertflow_version": __version__}
    tail = {"precision": precision, "opset": OPSET, "sha256": {file.name: checksum(file) for file in files}}
    (folder / CONFIG).write_text(json.dumps(sealed(head | settings | tail), indent=2) + "\n", encoding="utf-8")


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        ours = read_config(folder).get("format") == FORMAT
    except ModelFolderError:
        ours = False
    if not ours:
        raise ModelFolderError(
            f"{folder} exists and is not an ONNX export of bertflow; nothing was written. Give another folder or empty it."
        )
