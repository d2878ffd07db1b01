"""A run's checkpoint → a folder that transformers opens: float16 weights with the head, tokenizer, token counts, model card.

python -m pretraining export work mini
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM

from bertflow.storage.atomic import atomic_folder
from pretraining.prepare import ROW, SPECIAL
from pretraining.train import LENGTHS, LOG, build_model, read_checkpoint, restore

CURVE = ("validation", *(f"validation_{length}" for length in LENGTHS))
EXAMPLES = (
    "The capital of France is [MASK].",
    "She opened the [MASK] and read the first page.",
    "The doctor told the [MASK] to rest for a week.",
)


def guesses(model: BertForMaskedLM, tokenizer: Tokenizer, text: str, count: int = 5) -> list[str]:
    """Return the likeliest words for the [MASK] of a text."""
    encoded = tokenizer.encode(text)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([encoded.ids])).logits[0, encoded.tokens.index("[MASK]")]
    return [str(tokenizer.id_to_token(int(token))) for token in logits.topk(count).indices]


def export(folder: Path, output: Path) -> None:
    """Write the model of a run's last checkpoint to a folder, whole or not at all; a model that is there is replaced."""
    step, recipe, tensors = read_checkpoint(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = build_model(recipe, tokenizer.get_vocab_size()).eval()
    restore(model, tensors)
    card = write_card(model, tokenizer, step * recipe.rows * ROW, folder / LOG)
    # dropout for those who train it further; none was used here
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.1
    special = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    settings = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": True, "model_max_length": ROW, **special}
    with atomic_folder(output) as new:
        model.half().save_pretrained(new)
        for name in ("tokenizer.json", "token_counts.tsv"):
            shutil.copy(folder / name, new / name)
        (new / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        (new / "README.md").write_text(card, encoding="utf-8")


def write_card(model: BertForMaskedLM, tokenizer: Tokenizer, tokens: int, log: Path) -> str:
    """Fill CARD.md with what the run did."""
    points = [json.loads(line) for line in log.read_text().splitlines()]
    losses = "\n".join(f"| {p['step']} | " + " | ".join(f"{p[k]:.3f}" for k in CURVE) + " |" for p in points)
    examples = "\n".join(f"| {text} | {', '.join(guesses(model, tokenizer, text))} |" for text in EXAMPLES)
    card = Path(__file__).with_name("CARD.md").read_text(encoding="utf-8")
    facts = {"steps": str(points[-1]["step"]), "tokens": f"{tokens / 1e9:.2f}", "losses": losses, "examples": examples}
    for name, fact in facts.items():
        card = card.replace("{" + name + "}", fact)
    return card
