"""NLI supervision, SBERT's way: a siamese encoder under a softmax over entailment, neutral and contradiction.

The paper's Table 3 fits its flow on encoders tuned so. Trainer and loss are those of sentence-transformers; this module
reads the rows, keeps checkpoints to go on from, and writes a folder that ``Encoder`` and ``SentenceTransformer`` open.
"""

from __future__ import annotations

import json
import logging
import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, PrinterCallback, TrainerCallback

from bertflow.arrays import choose_device
from bertflow.data import MINI, mini_folder
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.encoders.transformer import Encoder
from bertflow.errors import InputError, ModelFolderError, require
from bertflow.paper.nli_data import LABELS, NliRows, download_nli, read_nli
from bertflow.storage.atomic import atomic_file, atomic_folder, recover
from bertflow.version import __version__

logger = logging.getLogger(__name__)

RECORD = "finetuning.json"
_POOLINGS = ("mean", "cls", "max")  # those that sentence-transformers has too
_RUN, _CLASSIFIER = "run.json", "classifier.safetensors"
_SAME_RUN = (  # equal in these, two runs are one
    "base_fingerprint", "data_sha256", "pooling", "epochs", "batch_size", "learning_rate", "warmup", "max_length", "seed",
)  # fmt: skip
_LOGS, _LOGS_A_CHECKPOINT = 100, 5  # a run logs about a hundred times and writes about twenty checkpoints


def finetune_nli(
    output: str | Path,
    train: str | Path | Sequence[str | Path] | None = None,
    base: str | Path = MINI,
    *,
    pooling: str = "mean",
    epochs: float = 1.0,
    batch_size: int = 16,
    learning_rate: float = 2e-5,
    warmup: float = 0.1,
    max_length: int | None = 64,
    seed: int = 0,
    device: str | torch.device | None = None,
    resume: bool = True,
    callbacks: Sequence[Callable[[dict[str, Any]], None]] = (),
    show_progress_bar: bool = False,
) -> Path:
    """Tune an encoder on natural language inference and write it to ``output``; the defaults are the paper's.

    Checkpoints lie in ``<output>.checkpoints`` until the end. What was killed goes on from the last one, and ends where it
    would have ended; what is finished is not done again.

    Args:
        output: Folder for the model. An earlier fine-tuning there is replaced, anything else is left alone and refused.
        train: Files for ``read_nli``; without them SNLI and MultiNLI are fetched from the hub.
        base: ``"mini"``, a Hugging Face id, or a local folder.
        pooling: ``"mean"``, ``"cls"`` or ``"max"``.
        epochs: Passes over the rows; a fraction is a part of a pass.
        batch_size: Pairs a step.
        learning_rate: Peak rate: linear warm-up, then linearly down to zero.
        warmup: The part of the steps that warms up.
        max_length: Tokens read of each sentence in training, at most what the model reads. The saved model reads that again.
        seed: Makes the result repeatable; the global random states are left as they were.
        device: Default: cuda, then mps, then cpu.
        resume: Go on from checkpoints of the same run; ``False`` throws them away.
        callbacks: Each is called with a dictionary (step, loss, learning_rate, epoch…) about a hundred times.
        show_progress_bar: Show one.

    Returns:
        ``output``, with the figures of the run in its ``finetuning.json``.
    """
    for package in ("sentence_transformers", "accelerate", "datasets"):
        require(package, extra="nli")
    target = Path(output)
    _check(target, pooling, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, warmup=warmup)
    chosen = _trainer_device(device)
    rows = download_nli() if train is None else read_nli(train)
    encoder = Encoder(base, pooling, device="cpu", dtype=torch.float32)
    settings = {
        "base": str(base),
        "base_fingerprint": encoder.fingerprint,
        "files": rows.sources,
        "rows": len(rows),
        "left_out": dict(rows.left_out),
        "data_sha256": rows.digest(),
        "pooling": pooling,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "max_length": min(max_length or encoder.max_length, encoder.max_length),
        "seed": seed,
    }
    checkpoints = target.resolve().with_name(f"{target.resolve().name}.checkpoints")
    if resume and not _differences(_read_json(target / RECORD), settings):
        logger.info("%s holds the result of this very run already; nothing is left to do.", target)
        if not _differences(_read_json(checkpoints / _RUN), settings):  # killed just before they were removed
            shutil.rmtree(checkpoints)
        return target
    if (target / RECORD).exists():
        logger.info("%s holds another fine-tuning, which this one will replace at its end.", target)
    last = _last_checkpoint(checkpoints, settings, resume)
    with _own_randomness(seed), quiet_transformers():
        model = _siamese(encoder, settings)
        trainer = _trainer(model, rows, settings, checkpoints, chosen)
        figures = _run(trainer, last, callbacks, show_progress_bar)
        model.max_seq_length = encoder.max_length
        _save(model, target, {"format": "bertflow-nli", "bertflow_version": __version__, **settings, **figures})
    shutil.rmtree(checkpoints)
    return target


def _check(target: Path, pooling: str, **positive: float) -> None:
    """Refuse settings that cannot be run, before any long work."""
    if pooling not in _POOLINGS:
        raise InputError(f"Fine-tuning has no pooling {pooling!r}; it has {', '.join(_POOLINGS)}.")
    for name, value in positive.items():
        if not (value > 0 or (name == "warmup" and value == 0)) or not math.isfinite(value):
            raise InputError(f"{name} must be positive; it was {value!r}.")
    if positive["warmup"] >= 1:
        raise InputError(f"warmup is a part of the run, below 1; it was {positive['warmup']!r}.")
    recover(target)
    ours = _read_json(target / RECORD) or (target.is_dir() and not any(target.iterdir()))
    if target.exists() and not ours:
        raise ModelFolderError(
            f"{target} exists and is not a model that `bertflow finetune-nli` wrote; nothing was written. Give another "
            "folder or empty this one."
        )


def _trainer_device(device: str | torch.device | None) -> torch.device:
    chosen = choose_device(device)
    if chosen.index:
        raise InputError(f"The trainer takes the first GPU it sees: set CUDA_VISIBLE_DEVICES={chosen.index} instead.")
    return chosen


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _differences(known: dict[str, Any] | None, settings: dict[str, Any]) -> list[str]:
    """Name the settings in which another run is not this one."""
    known = known or {}
    return [f"{key} {known.get(key)}, now {settings[key]}" for key in _SAME_RUN if known.get(key) != settings[key]]


def _last_checkpoint(folder: Path, settings: dict[str, Any], resume: bool) -> Path | None:
    """Return the newest complete checkpoint of this run, after removing unusable files."""
    known = _read_json(folder / _RUN)
    if known is None and folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ModelFolderError(f"{folder} is wanted for checkpoints but holds something else: move it away.")
    if known is not None and resume and (other := _differences(known, settings)):
        raise InputError(
            f"{folder} has checkpoints of another run ({'; '.join(other)}): repeat that run's settings to go on with it, or "
            "start again with resume=False (on the command line --no-resume)."
        )
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    with atomic_file(folder / _RUN) as path:
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    whole = {}
    for checkpoint in folder.glob("checkpoint-*"):
        if (checkpoint / _CLASSIFIER).is_file():
            whole[int(checkpoint.name.rpartition("-")[2])] = checkpoint
        else:  # killed while writing it
            shutil.rmtree(checkpoint)
    return whole[max(whole)] if whole else None


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed inside, as the trainer does globally; afterwards every generator is where it was."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (what the trainer seeds)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


def _siamese(encoder: Encoder, settings: dict[str, Any]) -> Any:
    """Build the SentenceTransformer: transformer and pooling.

    A pooler stays, although unused: sentence-transformers makes one up whenever it loads a checkpoint that has none.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    path = str(mini_folder()) if encoder.name == MINI and not Path(MINI).is_dir() else encoder.name
    never = {"trust_remote_code": False}  # code that comes with a model: none of the paper's needs any
    if AutoConfig.from_pretrained(path, **never).is_encoder_decoder:
        raise InputError(
            f"{path} has a decoder too; a tuned encoder without it could not be loaded again: take another."
        )
    transformer = Transformer(
        path,
        model_kwargs=never | {"dtype": torch.float32},
        config_kwargs=never,
        processor_kwargs=never,
        max_seq_length=settings["max_length"],
    )
    if transformer.tokenizer.pad_token_id is None:
        transformer.tokenizer.pad_token = encoder.tokenizer.pad_token
    return SentenceTransformer(modules=[transformer, Pooling(encoder.dim, encoder.pooling)], device="cpu")


def _trainer(model: Any, rows: NliRows, settings: dict[str, Any], folder: Path, device: torch.device) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

    class Trainer(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Write no card that quotes the user's sentences."""

    steps = math.ceil(settings["epochs"] * math.ceil(len(rows) / settings["batch_size"]))
    log_steps = max(1, steps // _LOGS)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings["epochs"],
        per_device_train_batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        weight_decay=0.01,  # SBERT's
        warmup_steps=math.ceil(settings["warmup"] * steps),
        seed=settings["seed"],
        logging_steps=log_steps,
        save_steps=log_steps * _LOGS_A_CHECKPOINT,
        save_total_limit=2,  # the last but one is whole, should the last be cut short
        report_to="none",
        disable_tqdm=True,
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=device.type == "cuda",
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # the trainer would take them all and multiply the batch
    data = {"sentence1": rows.premises, "sentence2": rows.hypotheses, "label": rows.labels}
    loss = SoftmaxLoss(model, model.get_embedding_dimension(), num_labels=len(LABELS))
    return Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict(data), loss=loss)


class _Watch(TrainerCallback):
    """Show progress, and complete each checkpoint with the classifier, which the trainer forgets.

    Its file is written last, so that a checkpoint that has it is whole.
    """

    def __init__(self, classifier: nn.Module, bar: Any, callbacks: Sequence[Callable[[dict[str, Any]], None]]) -> None:
        self.classifier, self.bar, self.callbacks = classifier, bar, callbacks

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" in logs:
            self.bar.set_postfix(loss=f"{logs['loss']:.3f}")
            for callback in self.callbacks:
                callback({"step": state.global_step, **logs})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        with atomic_file(Path(args.output_dir, f"checkpoint-{state.global_step}", _CLASSIFIER)) as path:
            save_file(self.classifier.state_dict(), path)
        if self.bar.disable:
            logger.info("Step %d of %d: checkpoint written.", state.global_step, state.max_steps)


def _run(
    trainer: Any, last: Path | None, callbacks: Sequence[Callable[[dict[str, Any]], None]], show_progress_bar: bool
) -> dict[str, Any]:
    """Train to the end, from the last checkpoint if there is one, and return the figures worth keeping."""
    classifier = trainer.loss.classifier
    done = 0
    if last is not None:
        classifier.load_state_dict(load_file(last / _CLASSIFIER))
        done = int(last.name.rpartition("-")[2])
        logger.info("Going on from step %d (%s).", done, last)
    trainer.remove_callback(PrinterCallback)
    steps = math.ceil(trainer.args.num_train_epochs * len(trainer.get_train_dataloader()))
    with tqdm(total=steps, initial=done, desc="fine-tuning on NLI", disable=not show_progress_bar) as bar:
        trainer.add_callback(_Watch(classifier, bar, callbacks))
        trainer.train(resume_from_checkpoint=last and str(last))
    if not all(bool(value.isfinite().all()) for value in trainer.model.parameters()):
        shutil.rmtree(trainer.args.output_dir)
        raise InputError("The training diverged: its weights are no longer finite. Take a lower learning_rate.")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"steps": trainer.state.global_step, "final_loss": losses[-1], "resumed_from_step": done or None}


def _save(model: Any, target: Path, record: dict[str, Any]) -> None:
    with atomic_folder(target) as temporary:
        model.to("cpu").save_pretrained(str(temporary), create_model_card=False)
        (temporary / "README.md").write_text(_card(record), encoding="utf-8")
        (temporary / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _card(record: dict[str, Any]) -> str:
    figures = "\n".join(f"| {key} | {value} |" for key, value in record.items() if value is not None)
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, bertflow, sentence-embeddings, feature-extraction, loss:SoftmaxLoss]
---

# {Path(record["base"]).name}, tuned on natural language inference

A siamese softmax model (SBERT) that `bertflow finetune-nli` trained with the trainer and the loss of sentence-transformers.
It opens with `SentenceTransformer(folder)` and with `bertflow.Encoder(folder, "{record["pooling"]}")`.

| setting | value |
|---|---|
{figures}
"""
