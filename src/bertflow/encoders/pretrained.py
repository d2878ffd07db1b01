"""Load a tokenizer and a transformer through Hugging Face, quietly, or say in a sentence what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bertflow.data import MINI, mini_folder
from bertflow.errors import InputError, ModelFolderError, require
from bertflow.storage.checkpoints import check_checkpoint, refuse_more_than_stored
from bertflow.storage.hub import options_for


def load_pretrained(path: str, dtype: torch.dtype | str, hub: dict[str, Any]) -> tuple[Any, Any]:
    """Load tokenizer and transformer without pooler and head, quietly, or say in a sentence what is wrong.

    Args:
        path: A folder or an id on the hub.
        dtype: Of the weights.
        hub: ``revision``, ``token``, ``local_files_only``, and ``trust_remote_code``: whether Python code that comes with
            the model may run, which it may only where the user said so in this very call.
    """
    import transformers

    if not Path(path).is_dir() and path.count("/") != 1 and ("/" in path or path.startswith(".")):
        raise InputError(f"There is no folder {path!r}; give a folder, a Hugging Face id, or '{MINI}'.")
    hub = options_for(path, {"trust_remote_code": False} | hub)
    try:
        stored = None if Path(path) == mini_folder() else check_checkpoint(path)
        with quiet_transformers():
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **hub)
            config = transformers.AutoConfig.from_pretrained(path, **hub)
            if stored:
                refuse_more_than_stored(path, _parameters(config, hub["trust_remote_code"]), stored)
            load = _without_pooler(transformers.AutoModel.from_pretrained, config)
            model, info = load(path, dtype=dtype, config=config, output_loading_info=True, **hub)
    except ModelFolderError as error:
        raise InputError(str(error)) from None
    except Exception as error:  # damaged files alone raise four kinds
        raise InputError(_why_not(path, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # transformers makes one up where its files are absent
        raise InputError(f"The model {path!r} comes without its tokenizer: put its tokenizer files beside its weights.")
    _check_vocabulary(path, tokenizer, model)
    random = sorted(key for key in info["missing_keys"] if not key.startswith(("pooler.", "decoder.")))
    if random:
        warnings.warn(
            f"The file of {path!r} lacks {len(random)} of the model's weights, such as {random[0]!r}; these were drawn at "
            "random, so its vectors mean little. Get a whole copy.",
            stacklevel=4,
        )
    tokenizer.padding_side = "right"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer, model


def _check_vocabulary(path: str, tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer with more tokens than the model has vectors for."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    if rows is not None and max(tokenizer.get_vocab().values()) >= rows:
        raise InputError(
            f"The tokenizer of {path!r} has tokens beyond the {rows:,} that the model knows: they do not belong together. Copy "
            "the whole model again."
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and load reports inside; afterwards everything is as the user had set it."""
    from transformers import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def architecture(config: Any, tokenizer: Any) -> str:
    """Return whether a model is ``"masked"`` (fills in masks), a ``"decoder"`` (reads from left to right) or ``"other"``."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if config.is_encoder_decoder:
        return "other"
    trained_as = " ".join(getattr(config, "architectures", None) or ())  # all there is of a model with code of its own
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING or "ForMaskedLM" in trained_as
    if masked and not getattr(config, "is_decoder", False):  # BERT's kin are in both tables
        return "masked" if tokenizer.mask_token_id is not None else "other"
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or "ForCausalLM" in trained_as
    return "decoder" if causal else "other"


def _parameters(config: Any, trust_remote_code: bool) -> int:
    """How many parameters a configuration makes, without memory for any.

    Whatever a checkpoint lacks, transformers draws at random before it says so: a single wrong size takes minutes.
    """
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, trust_remote_code=trust_remote_code)
    return sum(parameter.numel() for parameter in model.parameters())


def _without_pooler(load: Callable[..., Any], config: Any) -> Callable[..., Any]:
    """A pooler that the checkpoint lacks would be drawn at random, unused, with a long report in the terminal."""
    import transformers

    def attempt(path: str, **options: Any) -> Any:
        family = type(config) in transformers.MODEL_MAPPING
        try:
            return load(path, add_pooling_layer=False, **options) if family else load(path, **options)
        except TypeError:  # this family has no pooler to leave out
            return load(path, **options)

    return attempt


def _why_not(path: str, error: Exception) -> str:
    if "trust_remote_code=True" in str(error):  # what transformers asks for
        return (
            f"The model {path!r} comes with Python code of its own, which was not run. Read that code; if you trust it, say so "
            "in this call: trust_remote_code=True, on the command line --trust-remote-code."
        )
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if Path(path).is_dir():
        first = first if (Path(path) / "config.json").is_file() else "it has no config.json."
        return f"The folder {path!r} holds no model that transformers can load: {first}"
    return (
        f"The model {path!r} is neither a folder here nor could it be had from the Hugging Face hub (offline, misspelt or "
        f"private?): {first} — use '{MINI}', which ships with bertflow, or a local folder."
    )


def load_sentence_transformer(path: str, **options: Any) -> Any:
    """Load a SentenceTransformer, or say in a sentence what is wrong; its own code runs only if the caller says so.

    Args:
        path: A folder or an id on the hub.
        options: Of ``SentenceTransformer``, such as ``device``, ``local_files_only`` and ``trust_remote_code``.
    """
    library = require("sentence_transformers", "sentence-transformers")
    options = options_for(path, {"trust_remote_code": False} | options)
    try:
        for config in Path(path).glob("**/config.json"):
            check_checkpoint(config.parent)
        with quiet_transformers():
            model = library.SentenceTransformer(path, **options)
            model.encode(["One sentence."], show_progress_bar=False)  # what does not fit together shows itself here
        if transformer := getattr(model, "transformers_model", None):
            _check_vocabulary(path, model.tokenizer, transformer)
        return model
    except InputError:
        raise
    except ModelFolderError as error:
        raise InputError(str(error)) from None
    except Exception as error:  # it raises many kinds
        raise InputError(_why_not(path, error)) from error
