"""A calibrated model as a ``SentenceTransformer``: stock modules wherever they can say it, ``FlowModule`` for the flow.

What is built from stock modules alone (every affine calibrator, every pooling) loads with no flag and without bertflow.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from sklearn.utils.validation import check_is_fitted
from tokenizers import Tokenizer

from bertflow.calibrators import Calibrator, FlowCalibrator, WhiteningBesideFlow
from bertflow.encoders.joined import JoinedEncoder
from bertflow.encoders.pooling import LAYERS
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.encoders.token_table import StaticEncoder, surrounding_ids
from bertflow.encoders.transformer import Encoder, SentenceTransformerEncoder, TextEncoder
from bertflow.errors import InputError, TruncationWarning, require
from bertflow.integrations.hidden_states import keep_hidden_states, reads_hidden_states
from bertflow.model import BertFlow
from bertflow.texts import word_tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_PROBES = ["A small boat lies in the harbour.", "Nobody knows when the next train to the mountains will leave."]
# Shares of the difference between two sentences' vectors. For the mini encoder, two ways to compute the same vectors are
# 1e-6 apart in float32 and 0.02 in bfloat16; two poolings are 0.26 apart or more.
_ROUNDING, _HALF_ROUNDING, _ANOTHER_ENCODER = 0.01, 0.5, 0.2
_NEARLY_NOTHING = 1e-6  # the weight of punctuation, beside words that weigh 1 to 20; so it counts where there are none


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
    fitted = calibrator.calibrator if isinstance(calibrator, BertFlow) else calibrator
    if not isinstance(fitted, Calibrator):
        raise InputError(f"What is attached is a fitted calibrator or a BertFlow; got {type(calibrator).__name__}.")
    check_is_fitted(fitted)
    encoder = SentenceTransformerEncoder(model)
    if fitted.n_features_in_ != encoder.dim:
        raise InputError(
            f"The calibrator was fitted on {fitted.n_features_in_} dimensions, but the model {encoder.name!r} gives "
            f"{encoder.dim}: they do not belong together."
        )
    if isinstance(calibrator, BertFlow) and _difference(encoder, calibrator.encoder) > _ANOTHER_ENCODER:
        warnings.warn(
            f"The calibrator was fitted on the encoder {calibrator.encoder.name!r}; {encoder.name!r} gives other vectors, so "
            "these may be calibrated wrongly. Fit anew to be sure.",
            stacklevel=2,
        )
    return _extended(model, fitted, encoder.name)


def to_sentence_transformer(model: BertFlow) -> SentenceTransformer:
    """Return a calibrated model as a ``SentenceTransformer`` that encodes the same vectors.

    A model of the preset ``static`` becomes a stock ``StaticEmbedding``, whose vectors are those of
    ``encode(normalize_embeddings=True)``; an empty text gets zeros there. One of ``best`` reads no more tokens of a text than
    its transformer, where bertflow's own table reads all.

    Save it with ``save_pretrained``. With an affine calibrator anyone loads it, without bertflow; with a flow they need
    bertflow and ``trust_remote_code=True``. Long texts are cut at the same token, but silently. One thing differs: where a
    tokenizer adds no special tokens (GPT-2's), an empty text has no token, and the stock pooling makes zeros of it.

    A pool of processes (``encode(pool=…)``) works for what this returns and for a saved flow. A saved model of stock modules
    alone whose pooling reads two layers refuses to work in one (a KeyError): transformers loses hidden states there.

    Args:
        model: A model on a transformer or on a ``SentenceTransformer``, or of the presets ``static`` and ``best``. Averaged
            word vectors and encoders of your own have no counterpart in sentence-transformers and are refused.
    """
    require("sentence_transformers", "sentence-transformers")
    encoder = model.encoder
    if isinstance(encoder, SentenceTransformerEncoder):
        return attach(encoder.model, model.calibrator)
    if isinstance(encoder, StaticEncoder) and hasattr(model.calibrator, "as_affine"):
        return _from_table(encoder, model.calibrator)
    if isinstance(encoder, JoinedEncoder) and isinstance(model.calibrator, WhiteningBesideFlow):
        return _from_joined(model, encoder, model.calibrator)
    if not isinstance(encoder, Encoder):
        raise InputError(
            f"The encoder {encoder.name!r} is a {type(encoder).__name__}; only a transformer or a SentenceTransformer can "
            "become a SentenceTransformer."
        )
    return _extended(_from_encoder(encoder), model.calibrator, encoder.name, encoder.revision and encoder.name)


def _extended(model: Any, calibrator: Calibrator, name: str, hub_id: str | None = None) -> Any:
    """Return a new model: the modules of ``model`` and then the calibrator's."""
    width = next(size for module in reversed(model) if (size := _width(module)) is not None)
    modules = OrderedDict([*model.named_children(), (str(len(model)), _module(calibrator, width))])
    extended = _assembled(
        modules,
        calibrator,
        name,
        hub_id or model.model_card_data.base_model,
        device=str(model.device),
        prompts=dict(model.prompts),
        default_prompt_name=model.default_prompt_name,
        backend=model.backend,
    )
    extended.module_kwargs = model.module_kwargs
    keep_hidden_states(extended)
    return extended


def _from_table(encoder: StaticEncoder, calibrator: Any) -> Any:
    """Return a table of calibrated tokens: an affine map of a weighted mean points where the sum of its mapped terms does."""
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    matrix, bias = calibrator.as_affine()
    weights = np.maximum(encoder.weights, _NEARLY_NOTHING)
    rows = weights[:, None] * (encoder.vectors @ matrix + bias)
    tokenizer = Tokenizer.from_str(encoder.tokenizer.to_str())
    modules = [StaticEmbedding(tokenizer, rows.astype(np.float32)), Normalize()]
    return _assembled(modules, calibrator, encoder.name, None, device="cpu")


def _assembled(modules: Any, calibrator: Calibrator, name: str, base_model: str | None, **options: Any) -> Any:
    """Return a new model of these modules, compared by cosine, with a card that says what loading it takes."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import SentenceTransformerModelCardData

    card = SentenceTransformerModelCardData(local_files_only=True)
    card.base_model = base_model
    model = SentenceTransformer(modules=modules, similarity_fn_name="cosine", model_card_data=card, **options)
    # what the library keeps of a loaded model's card; its own would forget the flag that a flow needs
    model._model_card_text = _card(model, name, calibrator)
    return model


def _width(module: Any) -> int | None:
    """Return the dimensions that a module gives, if it knows them."""
    return module.get_embedding_dimension() if hasattr(module, "get_embedding_dimension") else None


def _module(calibrator: Calibrator, width: int) -> Any:
    """Return the module for vectors of ``width`` dimensions, the first of which the calibrator was fitted on."""
    from sentence_transformers.sentence_transformer.modules import Dense

    from bertflow.integrations.sentence_transformers import FlowModule

    if isinstance(calibrator, FlowCalibrator):
        return FlowModule(calibrator)
    if not hasattr(calibrator, "as_affine"):
        raise InputError(f"{type(calibrator).__name__} is neither affine nor a flow, so no module can stand for it.")
    matrix, bias = calibrator.as_affine()
    matrix = np.pad(matrix, ((0, width - len(matrix)), (0, 0)))
    weight, offset = torch.tensor(matrix.T, dtype=torch.float32), torch.tensor(bias, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        return Dense(width, len(bias), activation_function=None, init_weight=weight.contiguous(), init_bias=offset)


def _from_encoder(encoder: Encoder) -> Any:
    """Return transformer and pooling from stock modules, or refuse if their vectors are not the encoder's."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    mode = encoder.pooling if len(LAYERS[encoder.pooling]) == 1 else "mean"
    modules = [*_token_modules(encoder), Pooling(encoder.dim, mode)]
    model = SentenceTransformer(modules=modules, device=str(encoder.device))
    _check_same(model, encoder, encoder)
    return model


def _from_joined(model: BertFlow, encoder: JoinedEncoder, calibrator: WhiteningBesideFlow) -> Any:
    """Return transformer and ``JoinedModule``, or refuse if their vectors are not the model's."""
    from bertflow.integrations.sentence_transformers import JoinedModule

    static, contextual = encoder.static, encoder.contextual
    if contextual.pooling in ("cls", "max"):
        raise InputError(
            f"The words in their sentence are pooled by {contextual.pooling!r} in this model; only means can be exported. "
            "Fit the preset 'best' on the encoder's name."
        )
    matrix, bias = calibrator.whitening_.as_affine()
    special = np.isin(np.arange(len(static.weights)), np.concatenate(surrounding_ids(contextual.tokenizer)))
    words = word_tokens(contextual.tokenizer) if contextual.words_only else np.ones(len(static.weights), dtype=bool)
    arrays = {"weights": static.weights, "nothing": static.nothing, "matrix": matrix, "bias": bias}
    arrays |= {"scales": calibrator.scales_}
    tables = {name: torch.tensor(array, dtype=torch.float32) for name, array in arrays.items()}
    tables |= {"vectors": torch.tensor(static.vectors.astype(np.float16))}  # which they are exactly
    tables |= {"words": torch.from_numpy(words), "special": torch.from_numpy(special)}
    modules = [*_token_modules(contextual), JoinedModule(calibrator.flow_, tables)]
    exported = _assembled(modules, calibrator, encoder.name, None, device=str(contextual.device))
    keep_hidden_states(exported)
    _check_same(exported, model, contextual)
    return exported


def _check_same(model: Any, ours: Any, encoder: Encoder) -> None:
    allowed = _ROUNDING if encoder.model.dtype in (torch.float32, torch.float64) else _HALF_ROUNDING
    if not _difference(SentenceTransformerEncoder(model), ours) < allowed:
        raise InputError(
            f"The stock modules of sentence-transformers give other vectors than the encoder {encoder.name!r} with the "
            f"pooling {encoder.pooling!r}, so it cannot be exported. Load it as a SentenceTransformer and fit on that."
        )


def _token_modules(encoder: Encoder) -> list[Any]:
    """Return the stock modules that give the vectors of tokens, averaged over the layers that the pooling reads."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    layers = LAYERS[encoder.pooling]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _undisturbed():
        encoder.save(folder)
        transformer = Transformer(
            folder,
            model_kwargs={"dtype": encoder.model.dtype},
            processor_kwargs={"model_max_length": encoder.max_length},
            config_kwargs={"output_hidden_states": True} if len(layers) > 1 else {},
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            # over two layers the next module makes the tokens; without hidden states the model then stops, not errs
            module_output_name="token_embeddings" if len(layers) == 1 else "last_layer",
        )
    _clear_pooler(transformer.model, known=set(encoder.model.state_dict()))
    transformer.model.config._name_or_path = encoder.name
    return [transformer, *([_average(encoder, layers)] if len(layers) > 1 else [])]


def _average(encoder: Encoder, layers: tuple[int, ...]) -> Any:
    """Return the stock module that averages two layers of tokens, the others with weight 0."""
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    count = int(encoder.model.config.num_hidden_layers)
    numbers = [layer % (count + 1) for layer in layers]
    start = min(numbers)
    weights = torch.zeros(count + 1 - start)
    for number in numbers:
        weights[number - start] += 1
    parameter = torch.nn.Parameter(weights)  # a plain tensor would be saved but not found again
    return WeightedLayerPooling(encoder.dim, num_hidden_layers=count, layer_start=start, layer_weights=parameter)


def _clear_pooler(model: torch.nn.Module, known: set[str]) -> None:
    """Set to 0 the unused pooler that the library drew at random. It stays, or every loading would report it missing."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("pooler.") and name not in known:
                parameter.zero_()


def _difference(encoder: TextEncoder, other: TextEncoder) -> float:
    """Return how far two encoders are apart in what tells two sentences from each other: 0 for equal, about 1 for foreign.

    What all vectors of an encoder share, often a few huge dimensions, cancels out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        (a, b), (c, d) = encoder.encode(_PROBES).astype(np.float64), other.encode(_PROBES).astype(np.float64)
    return float(np.linalg.norm((a - b) - (c - d)) / max(np.linalg.norm(c - d), np.finfo(np.float32).tiny))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the terminal quiet and the global generator where it was."""
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        yield


def _card(model: Any, name: str, calibrator: Calibrator) -> str:
    """Return the README.md of a model that ends with ``calibrator``, which says what loading it takes."""
    kind, base = type(calibrator).__name__, model.model_card_data.base_model
    front = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "bertflow", "sentence-similarity", "feature-extraction", kind],
        **({"base_model": base} if base else {}),
    }
    homes = {type(module).__module__.partition(".")[0] for module in model}
    packages = "sentence-transformers bertflow" if "bertflow" in homes else "sentence-transformers"
    flag = "" if homes == {"sentence_transformers"} else ", trust_remote_code=True"
    note = """
Encode in one process: in a pool transformers (5.22) loses the hidden states that this model reads, and it stops.
"""
    return f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# {Path(name).name} + {kind}

Sentence vectors of `{Path(name).name}`, calibrated without labels by bertflow: a fixed map, fitted on unlabelled sentences and
applied after pooling, so that the cosine tells similar from dissimilar sentences better.

```bash
pip install {packages}
```

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("sentence_transformers_model_id"{flag})
vectors = model.encode(["One sentence.", "Another sentence."])
model.similarity(vectors, vectors)
```
{note if reads_hidden_states(model) and not flag else ""}"""
