"""An ALBERT in a checkpoint of PyTorch, as a folder of transformers that needs no unpickling."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AlbertConfig, AlbertModel, AutoTokenizer

from bertflow.errors import BertflowError

BASE = "albert."  # what its names begin with; the rest is the head that predicts masked words


def convert(source: Path, target: Path) -> str:
    """Write the encoder without its head, in safetensors, and return what was taken over.

    Args:
        source: The folder with ``config.json``, ``pytorch_model.bin`` and the tokenizer's files.
        target: The new folder.

    Raises:
        BertflowError: When a weight of the encoder is missing or is left over.
    """
    stored = torch.load(source / "pytorch_model.bin", weights_only=True, map_location="cpu")  # tensors, no code
    state = {name.removeprefix(BASE): tensor for name, tensor in stored.items() if name.startswith(BASE)}
    state.pop("embeddings.position_ids", None)  # 0, 1, 2, …, which older versions saved
    config = AlbertConfig.from_pretrained(source)
    model = AlbertModel(config, add_pooling_layer=False)
    differing = sorted(set(state) ^ set(model.state_dict()))
    if differing:
        raise BertflowError(
            f"The checkpoint is not the ALBERT of its config.json: {differing[0]!r} is only in one of them."
        )
    model.load_state_dict(state)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(target)
    return f"all {len(state)} weights of the encoder taken over"
