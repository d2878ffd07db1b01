"""What a calibrated model is made of in sentence-transformers: its stock modules, the whole, and the card."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tokenizers import Tokenizer

from bertflow.calibrators import Calibrator
from bertflow.encoders.base import TokenRows
from bertflow.encoders.pooling import (
    POOLINGS,
    first_token,
    last_token,
    maximum_of_tokens,
    mean_of_tokens,
    weighted_mean_of_tokens,
)
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.encoders.transformer import Encoder
from bertflow.integrations.hidden_states import reads_hidden_states

# What the stock module calls a way to reduce the vectors of tokens to one.
STOCK: dict[Callable[..., Any], str] = {
    first_token: "cls",
    mean_of_tokens: "mean",
    maximum_of_tokens: "max",
    last_token: "lasttoken",
    weighted_mean_of_tokens: "weightedmean",
}
_NEARLY_NOTHING = 1e-6  # the weight of punctuation, beside words that weigh 1 to 20; so it counts where there are none


def table_modules(table: TokenRows, calibrator: Any) -> list[Any]:
    """Return a table of calibrated tokens: an affine map of a weighted mean points where the sum of its mapped terms does."""
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    matrix, bias = calibrator.as_affine()
    rows = np.maximum(table.weights, _NEARLY_NOTHING)[:, None] * (table.vectors @ matrix + bias)
    tokenizer = Tokenizer.from_str(table.tokenizer.to_str())
    return [StaticEmbedding(tokenizer, rows.astype(np.float32)), Normalize()]


def calibrator_module(calibrator: Calibrator, width: int) -> Any:
    """Return the module for vectors of ``width`` dimensions, the first of which the calibrator was fitted on."""
    from sentence_transformers.sentence_transformer.modules import Dense

    from bertflow.integrations.sentence_transformers import FlowModule

    if not hasattr(calibrator, "as_affine"):
        return FlowModule(calibrator)
    matrix, bias = calibrator.as_affine()
    matrix = np.pad(matrix, ((0, width - len(matrix)), (0, 0)))
    weight, offset = torch.tensor(matrix.T, dtype=torch.float32), torch.tensor(bias, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        return Dense(width, len(bias), activation_function=None, init_weight=weight.contiguous(), init_bias=offset)


def pooling_modules(encoder: Encoder, pooling: str) -> list[Any]:
    """Return transformer and pooling as stock modules."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    layers, reduce = POOLINGS[pooling].layers, POOLINGS[pooling].reduce
    between = [] if layers == (-1,) else [_average(encoder, layers)]
    return [token_module(encoder, hidden_states=bool(between)), *between, Pooling(encoder.dim, STOCK[reduce])]


def token_module(encoder: Encoder, *, hidden_states: bool) -> Any:
    """Return the stock module that gives the vectors of tokens, of the last layer or, with ``hidden_states``, of all."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _undisturbed():
        encoder.save(folder)
        transformer = Transformer(
            folder,
            model_kwargs={"dtype": encoder.model.dtype},
            processor_kwargs={"model_max_length": encoder.max_length, "padding_side": "right"},
            config_kwargs={"output_hidden_states": True} if hidden_states else {},
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            # where the next module makes the tokens of all layers, the model without them stops, not errs
            module_output_name="last_layer" if hidden_states else "token_embeddings",
        )
    _clear_pooler(transformer.model, known=set(encoder.model.state_dict()))
    transformer.model.config._name_or_path = encoder.name
    return transformer


def _average(encoder: Encoder, layers: tuple[int, ...]) -> Any:
    """Return the stock module that averages some layers of tokens, the others with weight 0."""
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


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the terminal quiet and the global generator where it was."""
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        yield


def assembled(
    modules: Any, calibrators: Sequence[Calibrator], name: str, *, base_model: str | None = None, **options: Any
) -> Any:
    """Return a new model of these modules, compared by cosine, with a card that says what loading it takes."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import SentenceTransformerModelCardData

    card = SentenceTransformerModelCardData(local_files_only=True)
    card.base_model = base_model
    model = SentenceTransformer(modules=modules, similarity_fn_name="cosine", model_card_data=card, **options)
    # what the library keeps of a loaded model's card; its own would forget the flag that a flow needs
    model._model_card_text = _card(model, name, [type(calibrator).__name__ for calibrator in calibrators])
    return model


def _card(model: Any, name: str, calibrators: Sequence[str]) -> str:
    """Return the README.md of a model that ends with these calibrators, which says what loading it takes."""
    base = model.model_card_data.base_model
    front = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [
            "sentence-transformers",
            "bertflow",
            "sentence-similarity",
            "feature-extraction",
            *dict.fromkeys(calibrators),
        ],
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

# {Path(name).name} + {" beside ".join(calibrators)}

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
