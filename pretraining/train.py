"""Train BERT as a masked language model on packed rows, from scratch, on one GPU (or, for a toy, the CPU).

    python -m pretraining train work

Reads what ``prepare`` wrote to the folder; writes log.jsonl and checkpoint.safetensors there. Started again with the same
settings it goes on from the checkpoint: every step's rows and masks depend on the seed and the step alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import typer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM

from bertflow.errors import InputError
from bertflow.storage.atomic import atomic_file
from pretraining.masking import IGNORED, keep_texts_apart, mask_tokens
from pretraining.muon import Muon
from pretraining.prepare import PAD, ROW

LOG, CHECKPOINT = "log.jsonl", "checkpoint.safetensors"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RECIPE = Path(__file__).with_name("recipe.json")
LENGTHS = (32, 64, ROW)  # validation loss is told for texts of up to so many tokens


@dataclass(frozen=True)
class Recipe:
    """All that decides the result of a run."""

    steps: int
    rows: int = 768  # in a step: 98 304 tokens
    layers: int = 6
    width: int = 256
    heads: int = 4
    mask_rate: float = 0.2
    muon: bool = True  # for the layers' matrices; without it, AdamW for everything
    learning_rate: float = 2e-3
    warm_up: float = 0.05
    weight_decay: float = 0.05
    seed: int = 0

    def rate_at(self, step: int) -> float:
        """Learning rate: linear warm-up, then linearly to zero."""
        rising = (step + 1) / max(1, round(self.warm_up * self.steps))
        falling = (self.steps - step) / max(1, self.steps - round(self.warm_up * self.steps))
        return self.learning_rate * min(1.0, rising, falling)


def build_model(recipe: Recipe, vocabulary: int) -> BertForMaskedLM:
    """Return an untrained BERT; no dropout, since no token is seen often enough to be learnt by heart."""
    shape = {"hidden_size": recipe.width, "num_hidden_layers": recipe.layers, "num_attention_heads": recipe.heads}
    shape |= {"intermediate_size": 4 * recipe.width, "max_position_embeddings": ROW, "vocab_size": vocabulary}
    torch.manual_seed(recipe.seed)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForMaskedLM(BertConfig(pad_token_id=PAD, **shape, **dropout))


def predict(model: BertForMaskedLM, seen: Tensor, positions: Tensor) -> Tensor:
    """Logits (k, vocabulary) at the positions (k,) of packed rows (b, t); the head runs nowhere else."""
    mask, places = keep_texts_apart(seen)
    hidden = model.bert(input_ids=seen, attention_mask=mask, position_ids=places).last_hidden_state
    return model.cls(hidden.flatten(0, 1)[positions])


def make_optimizers(model: BertForMaskedLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """AdamW for all; or Muon for the layers' matrices, and the rest does not decay: rare words' embeddings would fade."""
    matrices = [p for name, p in model.named_parameters() if recipe.muon and p.ndim == 2 and ".layer." in name]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    decay, fused = 0.0 if recipe.muon else recipe.weight_decay, others[0].is_cuda
    adamw = torch.optim.AdamW(others, recipe.learning_rate, (0.9, 0.98), weight_decay=decay, fused=fused)
    return [Muon(matrices, recipe.learning_rate, recipe.weight_decay), adamw] if matrices else [adamw]


class Run:
    """A training run in the folder where ``prepare`` wrote: its model, optimizers and step, kept in one checkpoint."""

    def __init__(self, folder: Path, recipe: Recipe, device: str) -> None:
        self.folder, self.recipe, self.device, self.step = folder, recipe, torch.device(device), 0
        self.vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
        arrays = {split: np.load(folder / f"{split}.npy").astype(np.int32) for split in ("train", "validation")}
        self.rows = {split: torch.from_numpy(array).to(device) for split, array in arrays.items()}
        self.precision = torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
        self.order = -1, torch.empty(0)
        self.model = build_model(recipe, self.vocabulary).to(self.device)
        self.optimizers = make_optimizers(self.model, recipe)
        self.predict: Callable[..., Tensor] = torch.compile(predict) if device == "cuda" else predict
        if (folder / CHECKPOINT).exists():
            self.load()

    def generator(self, number: int) -> torch.Generator:
        """A generator that depends on the seed and a number alone."""
        return torch.Generator(self.device).manual_seed(self.recipe.seed * 1_000_003 + number)

    def batch(self, step: int) -> Tensor:
        """The rows (b, t) of a step: every epoch goes through all of them, in an order of its own."""
        rows, size = self.rows["train"], self.recipe.rows
        epoch, place = divmod(step, len(rows) // size)
        if self.order[0] != epoch:
            self.order = epoch, torch.randperm(len(rows), generator=self.generator(-1 - epoch), device=self.device)
        return rows[self.order[1][place * size : (place + 1) * size]].long()

    def advance(self) -> Tensor:
        """One step; returns its loss."""
        rate = self.recipe.rate_at(self.step)
        ids, draw = self.batch(self.step), self.generator(self.step)
        seen, positions, labels = mask_tokens(ids, self.recipe.mask_rate, self.vocabulary, draw)
        with self.precision:
            loss = cross_entropy(self.predict(self.model, seen, positions).float(), labels, ignore_index=IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss on held-out rows by length of text (a fifth of the tokens hidden)."""
        total, count = torch.zeros(len(LENGTHS)), torch.zeros(len(LENGTHS))
        for number, ids in enumerate(self.rows["validation"].long().split(self.recipe.rows)):
            seen, positions, labels = mask_tokens(ids, 0.2, self.vocabulary, self.generator(-1 - number))
            with self.precision:
                losses = cross_entropy(predict(self.model, seen, positions).float(), labels, reduction="none").cpu()
            lengths = keep_texts_apart(ids)[0].sum(-1).flatten()[positions].cpu()
            bucket = torch.bucketize(lengths, torch.tensor(LENGTHS))
            total.scatter_add_(0, bucket, losses)
            count.scatter_add_(0, bucket, (labels.cpu() != IGNORED).float())
        by_length = {f"validation_{length}": float(v) for length, v in zip(LENGTHS, total / count, strict=True)}
        return {"validation": float(total.sum() / count.sum()), **by_length}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All state by name: the model's, and the optimizers' once they have stepped."""
        yield from ((f"model.{name}", value) for name, value in self.model.named_parameters())
        for i, optimizer in enumerate(self.optimizers):
            for j, state in optimizer.state_dict()["state"].items():
                yield from ((f"optimizer.{i}.{j}.{name}", value) for name, value in state.items())

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        with atomic_file(self.folder / CHECKPOINT) as path:
            metadata = {"step": str(self.step), "recipe": json.dumps(asdict(self.recipe))}
            save_file({name: value.detach().contiguous() for name, value in self.tensors()}, path, metadata)

    def load(self) -> None:
        """Go on from the folder's checkpoint."""
        step, recipe, tensors = read_checkpoint(self.folder)
        if recipe != self.recipe:
            raise InputError(
                f"{self.folder / CHECKPOINT} is of another run: {recipe}, not {self.recipe}. Give the same settings to go on, "
                "or move the file away to begin anew."
            )
        self.step = step
        restore(self.model, tensors)
        for i, optimizer in enumerate(self.optimizers):
            state: dict[int, dict[str, Tensor]] = {}
            for key in (key for key in tensors if key.startswith(f"optimizer.{i}.")):
                _, _, number, name = key.split(".")
                state.setdefault(int(number), {})[name] = tensors[key]
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def restore(model: BertForMaskedLM, tensors: dict[str, Tensor]) -> None:
    """Copy a checkpoint's weights into a model, each by its name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])


def read_checkpoint(folder: Path) -> tuple[int, Recipe, dict[str, Tensor]]:
    """Return (step, recipe, tensors) of a folder's checkpoint."""
    path = folder / CHECKPOINT
    if not path.exists():
        raise InputError(f"{folder} holds no {CHECKPOINT}: python -m pretraining train makes it.")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    return int(metadata["step"]), Recipe(**json.loads(metadata["recipe"])), load_file(path)


def train(folder: Path, recipe: Path = RECIPE, device: str = DEVICE, every: int = 1000) -> None:
    """Train in the folder where prepare wrote, or go on; validate, log and keep a checkpoint every so many steps."""
    run = Run(folder, Recipe(**json.loads(recipe.read_text())), device)
    began, first = time.monotonic(), run.step
    while run.step < run.recipe.steps:
        loss = run.advance()
        if run.step % every == 0 or run.step == run.recipe.steps:
            speed = (run.step - first) * run.recipe.rows * ROW / (time.monotonic() - began)
            line = {"step": run.step, "loss": float(loss), **run.validate(), "tokens_per_second": round(speed)}
            with (folder / LOG).open("a") as log:
                log.write(json.dumps(line) + "\n")
            typer.echo(" ".join(f"{name} {value:.5g}" for name, value in line.items()))
            run.save()
