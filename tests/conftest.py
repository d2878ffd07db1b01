"""Shared fixtures: tiny random models made on the spot, and the mini encoder. Nothing asks the network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # huggingface_hub reads it once, when it is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")  # with tiny tensors, threads on a busy machine mostly wait for each other

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
if SHARED.is_dir():  # beside the checkout; the package itself never looks there
    os.environ.setdefault("BERTFLOW_DATA", str(SHARED))

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "red",
    "blue",
    "house",
    "runs",
    "fast",
    "slow",
    "and",
    "then",
    "tea",
    "green",
    "bird",
    "sings",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep vectors for all tests and their processes, and out of the user's own cache."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTFLOW_CACHE", str(place / "bertflow-cache"))
        yield


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """The command line sets how much is logged; the next test begins anew."""
    yield
    logging.getLogger("bertflow").setLevel(logging.NOTSET)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[Any, ...]]]:
    """Call the command in this process, as `bertflow ARGS`; returns (exit code, stdout, stderr)."""
    from bertflow.cli import main

    show, filters, level = warnings.showwarning, warnings.filters[:], logging.getLogger("bertflow").level
    handlers = logging.getLogger().handlers[:]

    def call(*args: object) -> tuple[Any, ...]:
        monkeypatch.setattr(sys, "argv", ["bertflow", *map(str, args)])
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    yield call
    warnings.showwarning, warnings.filters[:] = show, filters
    logging.getLogger("bertflow").setLevel(level)
    logging.getLogger().handlers[:] = handlers  # ours would write to a stream that pytest has closed


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Four hundred different sentences of words that the tiny models know."""
    rng = np.random.default_rng(0)
    drawn = (" ".join(rng.choice(WORDS, size=rng.integers(3, 12))) for _ in range(500))
    return list(dict.fromkeys(drawn))[:400]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a tiny random model of a family: ``tiny("bert")``."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def folder(kind: str) -> Path:
        import torch
        import transformers

        with torch.random.fork_rng():
            torch.manual_seed(len(kind))
            model, tokenizer = FAMILIES[kind]()
        bars = transformers.logging.is_progress_bar_enabled()
        transformers.logging.disable_progress_bar()
        model.save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
        if bars:
            transformers.logging.enable_progress_bar()
        return root / kind

    return folder


@pytest.fixture(scope="session")
def tiny_bert(tiny: Callable[[str], Path]) -> Path:
    return tiny("bert")


@pytest.fixture(scope="session")
def mini() -> Any:
    """The encoder that ships with bertflow, loaded."""
    from bertflow import Encoder

    return Encoder("mini", device="cpu")


@pytest.fixture(scope="session")
def small_model(tiny_bert: Path, sentences: list[str]) -> Any:
    """A flow on the tiny BERT, 16 dimensions; do not change it."""
    from bertflow import BertFlow, FlowCalibrator

    return BertFlow.fit(sentences, tiny_bert, calibrator=FlowCalibrator(epochs=2, random_state=0), device="cpu")


@pytest.fixture(scope="session")
def change_config() -> Callable[[Path, Callable[[dict[str, Any]], Any]], None]:
    """Return what changes a saved model's config.json and seals it again, as a stranger could."""
    from bertflow.storage.checksums import sealed
    from bertflow.storage.model_folder import FREE

    def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        edit(config)
        (folder / "config.json").write_text(json.dumps(sealed(config, FREE)), encoding="utf-8")

    return change


def _wordpiece_tokenizer() -> Any:
    """Words, letters and pieces of BERT's kind: [CLS] text [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys([*special, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)])
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _byte_tokenizer(special: list[str], template: str | None, **names: str) -> Any:
    """One token a byte, of GPT-2's kind; ``template`` says where special tokens go."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if template:
        marks = [(piece, i) for i, piece in enumerate(special) if piece in template.split()]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=marks)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _bert() -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    tokenizer = _wordpiece_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.2, **sizes)
    return BertModel(config, add_pooling_layer=False), tokenizer


def _distilbert() -> tuple[Any, Any]:
    from transformers import DistilBertConfig, DistilBertModel

    tokenizer = _wordpiece_tokenizer()
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}
    return DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **sizes)), tokenizer


def _roberta(kind: str = "Roberta", **extra: Any) -> tuple[Any, Any]:
    """RoBERTa and its kin: 34 rows of positions, of which 32 can be used."""
    import transformers

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    names = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    tokenizer = _byte_tokenizer(special, "<s> $A </s>", cls_token="<s>", sep_token="</s>", **names)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=34,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        **extra,
    )
    return getattr(transformers, f"{kind}Model")(config, add_pooling_layer=False), tokenizer


def _gpt2() -> tuple[Any, Any]:
    """No padding token and no special tokens around a text."""
    from transformers import GPT2Config, GPT2Model

    end = "<|endoftext|>"
    tokenizer = _byte_tokenizer([end], None, bos_token=end, eos_token=end, unk_token=end)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    return GPT2Model(GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)), tokenizer


def _t5() -> tuple[Any, Any]:
    """Encoder and decoder."""
    from transformers import T5Config, T5Model

    special = ["<pad>", "</s>", "<unk>"]
    tokenizer = _byte_tokenizer(special, "$A </s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return T5Model(T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **sizes)), tokenizer


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "bert": _bert,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "camembert": lambda: _roberta("Camembert"),
    "mpnet": lambda: _roberta("MPNet"),
    "gpt2": _gpt2,
    "t5": _t5,
}
