"""Prompts in exports: a tokenizer that puts every text into the prompt, and the view of its tokens as a torch module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bertflow.encoders.base import Reading, Template
from bertflow.encoders.modules import States, ViewModule
from bertflow.encoders.pooling import pool
from bertflow.encoders.templates import read_tokens
from bertflow.errors import InputError


class PromptedTokens(ViewModule):
    """One token of a template, or the tokens of a text in it.

    Args:
        pooling: One of ``bertflow.POOLINGS``.
        layers: The hidden states that are read.
        pieces: Of the template: token ids before and behind the text.
        place: Of the template: the token that is read.
    """

    def __init__(
        self, pooling: str, layers: Sequence[int], pieces: Sequence[Sequence[int]], place: Sequence[int] | None
    ) -> None:
        super().__init__()
        self.settings = {"pooling": pooling, "layers": layers, "pieces": pieces, "place": place}
        self.layers = tuple(layers)
        token = None if place is None else (place[0], place[1])
        self.template = Template(tuple(tuple(piece) for piece in pieces), token)

    def forward(self, states: States, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the states that are read (n, d)."""
        return pool(states, read_tokens(self.template, mask), self.settings["pooling"], self.layers)


def lone_template(reading: Reading, view: str) -> Template:
    """Return a reading's template, or refuse what takes more than one pass."""
    template = reading.templates[0]
    if len(reading.templates) == 1 and template.copies == 1 and not template.subtract_bias and template.weight == 1:
        return template
    raise InputError(
        f"{view} takes several readings of a text (more prompts, more copies, or the prompt without it for its bias), and an "
        "export takes one: Prompt('…', subtract_bias=False) can be exported."
    )


def prompting_encoder(encoder: Any, template: Template) -> Any:
    """Return a copy of a transformer whose tokenizer puts every text into a template, and cuts only the text."""
    from tokenizers import normalizers, processors
    from transformers import PreTrainedTokenizerFast

    if not encoder.tokenizer.is_fast:
        raise InputError(f"{encoder.name!r} has no fast tokenizer, and only these can be exported with a prompt.")
    tokenizer = copy.deepcopy(encoder.tokenizer.backend_tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    marks = {f"piece{i}": list(piece) for i, piece in enumerate(template.pieces) if piece}
    before, after = (f"piece{i}:0" if f"piece{i}" in marks else "" for i in (0, 1))
    special = [{"id": mark, "ids": ids, "tokens": [mark] * len(ids)} for mark, ids in marks.items()]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(filter(None, (before, "$A:0", after))), special_tokens=special
    )
    if template.lead:
        kept = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(template.lead), *kept])
    prompting = copy.copy(encoder)
    names = {"model_max_length": encoder.max_length, "truncation_side": encoder.tokenizer.truncation_side}
    prompting.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="right", **names, **encoder.tokenizer.special_tokens_map
    )
    return prompting
