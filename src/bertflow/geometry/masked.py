"""Run a masked language model over a corpus and decompose its logits (``bertflow.geometry.decomposition``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertflow.arrays import Matrix
from bertflow.encoders.base import TextEncoder
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.errors import InputError
from bertflow.geometry.decomposition import Decomposition, LogitDecomposer
from bertflow.geometry.figures import Figures
from bertflow.geometry.tokens import encoder_folder, tokenizer_of

CONTEXTS = 500
_AT_ONCE = 64  # contexts: their logits, contexts × vocabulary, are held in float64


@dataclass(frozen=True)
class LogitReport(Figures):
    """The decomposition of a masked language model's logits.

    Args:
        dot_product: Of h·w, the paper's equation.
        logit: Of h·w + b, the model's prediction: its output bias b depends on the word and may include log p(x).
    """

    dot_product: Decomposition
    logit: Decomposition


def decompose_masked_lm(
    encoder: TextEncoder,
    sentences: Sequence[str],
    counts: npt.NDArray[np.int64],
    *,
    contexts: int = CONTEXTS,
    seed: int = 0,
) -> LogitReport:
    """Mask one token in each of some sentences and decompose the model's logits there.

    Args:
        encoder: An ``Encoder`` whose checkpoint has its masked-language-model head (mini does).
        sentences: The corpus.
        counts: How often each token occurs, (V,).
        contexts: How many sentences, drawn without replacement; all where there are fewer.
        seed: Of the sentences and the masked positions.

    Raises:
        InputError: When the model has no such head.
    """
    model = _load(encoder)
    head = model.get_output_embeddings()
    bias = getattr(head, "bias", None)
    offset = np.zeros(1) if bias is None else bias.detach().float().cpu().numpy()
    width = int(head.weight.shape[0])
    table = np.zeros(width, dtype=np.int64)  # a model may have more or fewer outputs than input embeddings
    table[: min(width, len(counts))] = counts[:width]
    without, full = LogitDecomposer(table), LogitDecomposer(table)
    for logits in _masked_logits(model, encoder, sentences, contexts, seed):
        full.add(logits)
        without.add(logits - offset)
    return LogitReport(without.result(), full.result())


def _masked_logits(model: Any, encoder: Any, sentences: Sequence[str], contexts: int, seed: int) -> Iterator[Matrix]:
    """Yield logits (m, V) at masked positions, one in each sentence drawn."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(sentences))[:contexts].tolist()
    tokenizer = encoder.tokenizer
    rows = tokenizer(
        [sentences[i] for i in drawn], truncation=True, max_length=encoder.max_length, return_special_tokens_mask=True
    )
    masked = []
    for ids, special in zip(rows["input_ids"], rows["special_tokens_mask"], strict=True):
        free = np.flatnonzero(np.asarray(special) == 0)
        if len(free):
            place = int(rng.choice(free))
            masked.append(([*ids[:place], tokenizer.mask_token_id, *ids[place + 1 :]], place))
    if not masked:
        raise InputError("No sentence has a token that could be masked.")
    masked.sort(key=lambda row: len(row[0]))
    for start in range(0, len(masked), _AT_ONCE):
        yield _logits(model, tokenizer.pad_token_id, masked[start : start + _AT_ONCE])


@torch.inference_mode()
def _logits(model: Any, padding: int, masked: list[tuple[list[int], int]]) -> Matrix:
    width = max(len(ids) for ids, _ in masked)
    ids = torch.tensor([[*row, *[padding] * (width - len(row))] for row, _ in masked], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row, _ in masked], device=model.device)
    places = torch.tensor([place for _, place in masked], device=model.device)

    def keep_masked(module: Any, inputs: Any, output: Any) -> Any:
        """The head is slower than the transformer: give it only the masked positions."""
        output.last_hidden_state = output.last_hidden_state[torch.arange(len(places)), places][:, None]
        return output

    handle = model.base_model.register_forward_hook(keep_masked)
    try:
        return model(input_ids=ids, attention_mask=mask).logits[:, 0].float().cpu().numpy()
    finally:
        handle.remove()


def _load(encoder: Any) -> Any:
    """Load the encoder's checkpoint again, with its masked-language-model head."""
    import transformers

    config = getattr(getattr(encoder, "model", None), "config", None)
    if type(config) not in transformers.MODEL_FOR_MASKED_LM_MAPPING or not hasattr(encoder, "max_length"):
        raise InputError(f"{encoder.name!r} is no masked language model.")
    if tokenizer_of(encoder).mask_token_id is None:
        raise InputError(f"The tokenizer of {encoder.name!r} has no mask token.")
    folder = encoder_folder(encoder)
    path = str(folder) if folder.is_dir() else encoder.name
    with quiet_transformers():
        model, info = transformers.AutoModelForMaskedLM.from_pretrained(
            path, revision=encoder.revision, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    if info["missing_keys"]:
        raise InputError(f"The checkpoint of {encoder.name!r} has no masked-language-model head.")
    return model.eval().requires_grad_(False).to(encoder.device)
