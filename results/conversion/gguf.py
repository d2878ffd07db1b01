"""A language model in a GGUF file, as a folder of transformers in float32."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers.processors import TemplateProcessing

from bertflow.errors import InputError


def convert(file: Path, target: Path, *, bos: bool = False) -> None:
    """Save a GGUF file as a folder.

    Args:
        file: The whole model.
        target: The new folder.
        bos: Whether the tokenizer begins each text as in training, where the file does not say so.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if find_spec("gguf") is None:
        raise InputError(f"{file.name} is a GGUF file, and the package that reads those is not here: pip install gguf")
    place = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    model.is_quantized, model.hf_quantizer = False, None  # they are plain numbers by now
    del model.config.quantization_config
    if bos:
        start = tokenizer.bos_token
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, tokenizer.bos_token_id)]
        )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
