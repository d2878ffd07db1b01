"""A calibrated model as a ``SentenceTransformer``: stock modules wherever they can say it, ours for the rest.

What is built from stock modules alone (an affine calibrator on a pooling or on a table of tokens) loads with no flag and
without bertflow; a flow, or several parts side by side, are modules of ours.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix, unit_rows
from bertflow.calibrators import Calibrator
from bertflow.encoders.base import Reading, exported_encoder
from bertflow.encoders.pooling import POOLINGS
from bertflow.encoders.sentence_transformer import SentenceTransformerEncoder
from bertflow.errors import InputError, TruncationWarning, require
from bertflow.integrations.hidden_states import keep_hidden_states
from bertflow.integrations.sentence_transformers_stock import (
    STOCK,
    assembled,
    calibrator_module,
    pooling_modules,
    table_modules,
    token_module,
)
from bertflow.model import BertFlow
from bertflow.parts import Part

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_PROBES = ["A small boat lies in the harbour.", "Nobody knows when the next train to the mountains will leave."]
# Shares of the difference between two sentences' vectors. For the mini encoder, two ways to compute the same vectors are
# 1e-6 apart in float32 and 0.02 in bfloat16; two poolings are 0.26 apart or more.
_ROUNDING, _HALF_ROUNDING, _ANOTHER_ENCODER = 0.01, 0.5, 0.2


def attach(model: SentenceTransformer, calibrator: Calibrator | BertFlow) -> SentenceTransformer:
    """Put a fitted calibrator on a ``SentenceTransformer``, in memory.

    The calibrator comes last, also after a ``Normalize``: it was fitted on what the model's ``encode`` gives, so the new
    model encodes as ``BertFlow(model, calibrator)`` does. An affine calibrator becomes a stock ``Dense``, a flow becomes a
    ``FlowModule``. Prompts are kept; ``truncate_dim`` is applied before the calibrator and no more after it; the similarity
    is the cosine.

    Args:
        model: What the calibrator was fitted on. It stays as it is; the new model shares its weights.
        calibrator: A fitted calibrator of the model's dimension, or a ``BertFlow`` that has one; with a ``BertFlow`` a
            warning says if it was fitted on another encoder.

    Returns:
        A new ``SentenceTransformer``.

    Example:
        >>> bertflow.attach(SentenceTransformer("all-MiniLM-L6-v2"), calibrator).encode("One sentence.")  # doctest: +SKIP
    """
    library = require("sentence_transformers", "sentence-transformers")
    if not isinstance(model, library.SentenceTransformer):
        raise InputError(f"A calibrator is attached to a loaded SentenceTransformer; got {type(model).__name__}.")
    view, fitted = _view_and_calibrator(calibrator)
    check_is_fitted(fitted)
    encoder = SentenceTransformerEncoder(model)
    if fitted.n_features_in_ != encoder.dim:
        raise InputError(
            f"The calibrator was fitted on {fitted.n_features_in_} dimensions, but the model {encoder.name!r} gives "
            f"{encoder.dim}: they do not belong together."
        )
    if view is not None and _difference(_probed(encoder), _probed(view)) > _ANOTHER_ENCODER:
        warnings.warn(
            f"The calibrator was fitted on the encoder {view.encoder.name!r}; {encoder.name!r} gives other vectors, so "
            "these may be calibrated wrongly. Fit again to be sure.",
            stacklevel=2,
        )
    return _extended(model, fitted, encoder.name)


def to_sentence_transformer(model: BertFlow) -> SentenceTransformer:
    """Return a calibrated model, of any recipe, as a ``SentenceTransformer`` that encodes the same vectors.

    An affine calibrator on a pooling becomes a stock ``Dense``, a flow becomes a ``FlowModule``. A table of tokens alone
    (``static``) becomes a stock ``StaticEmbedding``, whose vectors are those of ``encode(normalize_embeddings=True)``; an
    empty text gets zeros there. Several parts (``best``) become one ``PartsModule``; its table reads no more tokens of a
    text than its transformer, where bertflow's own reads all.

    Save it with ``save_pretrained``. Of stock modules alone, anyone loads it, without bertflow; else they need bertflow and
    ``trust_remote_code=True``. Long texts are cut at the same token, but silently. One thing differs: where a tokenizer adds
    no special tokens (GPT-2's), an empty text has no token, and the stock pooling makes zeros of it.

    A pool of processes (``encode(pool=…)``) works for what this returns and for a saved model with a module of ours. A saved
    model of stock modules alone whose pooling reads two layers refuses to work in one (a KeyError): transformers loses
    hidden states there.

    Args:
        model: A model on a transformer or on a ``SentenceTransformer``. Averaged word vectors and encoders of your own have
            no counterpart in sentence-transformers and are refused.
    """
    library = require("sentence_transformers", "sentence-transformers")
    theirs = _their_model(model)
    if len(model.parts) > 1:
        return _from_parts(model, theirs)
    (part,) = model.parts
    if theirs is not None:
        return attach(theirs, part.calibrator)
    table, name = part.view.as_table(), model.encoder.name
    if table is not None and hasattr(part.calibrator, "as_affine"):
        exported = assembled(table_modules(table, part.calibrator), [part.calibrator], name, device="cpu")
        _check_same(exported, unit_rows(_probed(model)), name)
        return exported
    if not _is_stock(part):
        return _from_parts(model, None)
    encoder = _transformer(model)
    front = library.SentenceTransformer(
        modules=pooling_modules(encoder, part.view.reading.pooling), device=str(encoder.device)
    )
    _check_same(front, _probed(part.view), name, encoder.model.dtype)
    return _extended(front, part.calibrator, name, encoder.revision and name)


def _view_and_calibrator(given: Any) -> tuple[Any, Calibrator]:
    """Return what is attached, and the view that it was fitted on where that is known."""
    if isinstance(given, Calibrator):
        return None, given
    if not isinstance(given, BertFlow):
        raise InputError(f"What is attached is a fitted calibrator or a BertFlow; got {type(given).__name__}.")
    if len(given.parts) > 1:
        raise InputError(
            f"This BertFlow has {len(given.parts)} parts, and one calibrator is attached: to_sentence_transformer(model) "
            "makes a SentenceTransformer of the whole."
        )
    return given.parts[0].view, given.parts[0].calibrator


def _their_model(model: BertFlow) -> Any:
    """Return the ``SentenceTransformer`` that a model stands on; None where it stands on something else."""
    if not any(part.view.needs_encoder for part in model.parts):
        return None
    theirs = getattr(model.encoder, "model", None)
    return theirs if hasattr(theirs, "get_embedding_dimension") else None


def _transformer(model: BertFlow) -> Any:
    """Return the transformer with its tokenizer that a model stands on."""
    if not hasattr(model.encoder, "encode_views"):
        raise InputError(
            f"The encoder {model.encoder.name!r} is a {type(model.encoder).__name__}; only a transformer or a "
            "SentenceTransformer can become a SentenceTransformer."
        )
    return exported_encoder([part.view for part in model.parts], model.encoder)


def _is_stock(part: Part) -> bool:
    """Whether stock modules pool as a part's view does."""
    reading = part.view.reading
    if reading is None or POOLINGS[reading.pooling].reduce not in STOCK:
        return False
    ends = all(one.place == (one.copies, len(one.pieces[-1]) - 1) for one in reading.templates)
    plain = reading._replace(templates=(), layers=None) == Reading(reading.pooling)
    return (
        plain and ends and reading.layers in (None, POOLINGS[reading.pooling].layers)
    )  # a prompt ends where it is read


def _extended(model: Any, calibrator: Calibrator, name: str, hub_id: str | None = None) -> Any:
    """Return a new model: the modules of ``model`` and then the calibrator's."""
    sizes = (getattr(module, "get_embedding_dimension", lambda: None)() for module in reversed(model))
    width = next(size for size in sizes if size is not None)
    modules = OrderedDict([*model.named_children(), (str(len(model)), calibrator_module(calibrator, width))])
    extended = assembled(
        modules,
        [calibrator],
        name,
        base_model=hub_id or model.model_card_data.base_model,
        device=str(model.device),
        prompts=dict(model.prompts),
        default_prompt_name=model.default_prompt_name,
        backend=model.backend,
    )
    extended.module_kwargs = model.module_kwargs
    keep_hidden_states(extended)
    return extended


def _from_parts(model: BertFlow, theirs: Any) -> Any:
    """Return the encoder's own modules and then ``PartsModule``, or refuse if their vectors are not the model's."""
    from bertflow.integrations.sentence_transformers import PartsModule

    encoder: Any = model.encoder if theirs is not None else _transformer(model)
    tokenizer = encoder.tokenizer if theirs is None else theirs.tokenizer
    last = PartsModule.of(model.parts, tokenizer.pad_token_id)
    front = [token_module(encoder, hidden_states=last.reads_hidden_states)] if theirs is None else list(theirs)
    calibrators = [part.calibrator for part in model.parts]
    exported = assembled([*front, last], calibrators, encoder.name, device=str(encoder.model.device))
    keep_hidden_states(exported)
    _check_same(exported, _probed(model), encoder.name, encoder.model.dtype)
    return exported


def _check_same(model: Any, expected: Matrix, name: str, dtype: torch.dtype = torch.float32) -> None:
    allowed = _ROUNDING if dtype in (torch.float32, torch.float64) else _HALF_ROUNDING
    if not _difference(_probed(SentenceTransformerEncoder(model)), expected) < allowed:
        raise InputError(
            f"The modules of sentence-transformers give other vectors than the encoder {name!r} here, so it cannot be "
            "exported. Load it as a SentenceTransformer and fit on that."
        )


def _probed(encoder: Any) -> Matrix:
    """Return the vectors (2, d) of two sentences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return encoder.encode(_PROBES).astype(np.float64)


def _difference(found: Matrix, expected: Matrix) -> float:
    """Return how far two vectors (2, d) are from those expected, in what tells the sentences apart: about 1 for foreign ones.

    What all vectors of an encoder share, often a few huge dimensions, cancels out.
    """
    (a, b), (c, d) = found, expected
    return float(np.linalg.norm((a - b) - (c - d)) / max(np.linalg.norm(c - d), np.finfo(np.float32).tiny))
