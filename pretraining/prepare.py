"""Paragraphs → WordPiece vocabulary → packed rows of token ids.

    python -m pretraining prepare part-*.txt.xz --output work

The text has one paragraph a line, as .txt or .txt.xz. A row holds one or more whole texts of up to 128 tokens, each as
``[CLS] … [SEP]``, packed so that hardly any of it is padding; ``train`` keeps the texts of a row apart by its attention mask.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import typer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

ROW = 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(5)
SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))\s+(?=[\"'(\[]?[A-Z0-9])")
# Tokens a text may have, drawn for each: the encoder is to know short texts as well as long ones.
LIMITS = (24, 40, 64, ROW)
VALIDATION = 200  # one paragraph in so many is held out

Rows = np.ndarray[Any, np.dtype[np.uint16]]


def paragraphs(files: Iterable[Path]) -> Iterator[str]:
    """Yield the paragraphs of text files."""
    for path in files:
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Train BERT's lower-case WordPiece tokenizer on texts."""
    tokenizer: Any = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIAL), limit_alphabet=400)
    tokenizer.train_from_iterator(texts, trainer)
    ends = [("[CLS]", CLS), ("[SEP]", SEP)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    return tokenizer


def cut(paragraph: list[list[int]], limit: int) -> Iterator[list[int]]:
    """Join a paragraph's sentences (token ids) to texts of at most ``limit`` tokens, ends included; overlong ones are cut."""
    room = limit - 2
    text: list[int] = []
    for sentence in paragraph:
        if text and len(text) + len(sentence) > room:
            yield [CLS, *text, SEP]
            text = []
        text += sentence[: room - len(text)]
    if text:
        yield [CLS, *text, SEP]


def pack(texts: list[list[int]]) -> Rows:
    """Lay texts into rows (n, 128), each row filled with the longest text that still fits; padded by zeros."""
    waiting: list[list[list[int]]] = [[] for _ in range(ROW + 1)]
    for text in texts:
        waiting[len(text)].append(text)
    rows = []
    longest = ROW
    while True:
        while longest and not waiting[longest]:
            longest -= 1
        if not longest:
            break
        row, length = [], longest
        while length:
            row += waiting[length].pop()
            length = min(ROW - len(row), longest)
            while length and not waiting[length]:
                length -= 1
        rows.append(row + [PAD] * (ROW - len(row)))
    return np.array(rows, dtype=np.uint16).reshape(-1, ROW)


def count_tokens(rows: Rows, tokenizer: Tokenizer, top: int = 10_000) -> list[tuple[str, int]]:
    """Return the most frequent tokens of the rows with their counts, the special ones apart."""
    counts = np.bincount(rows.ravel(), minlength=tokenizer.get_vocab_size())[len(SPECIAL) :]
    order = np.argsort(-counts, kind="stable")[: min(top, np.count_nonzero(counts))]
    return [(str(tokenizer.id_to_token(int(token) + len(SPECIAL))), int(counts[token])) for token in order]


def rows_of(file: Path, tokenizer_file: Path, seed: int) -> dict[str, Rows]:
    """Tokenise, cut and pack one file; every 200th paragraph is held out."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    random = np.random.default_rng(seed)
    packed: dict[str, list[Rows]] = {"train": [], "validation": []}
    stream = enumerate(paragraphs([file]))
    while chunk := list(islice(stream, 50_000)):
        sentences = [SENTENCE_END.split(paragraph) for _, paragraph in chunk]
        encoded = iter(tokenizer.encode_batch_fast([s for group in sentences for s in group], add_special_tokens=False))
        texts: dict[str, list[list[int]]] = {"train": [], "validation": []}
        for (number, _), group, limit in zip(chunk, sentences, random.choice(LIMITS, len(chunk)).tolist(), strict=True):
            split = "train" if number % VALIDATION else "validation"
            texts[split] += cut([next(encoded).ids for _ in group], limit)
        for split, found in texts.items():
            packed[split].append(pack(found))
    return {split: np.concatenate(parts) for split, parts in packed.items()}


def prepare(files: list[Path], output: Path = Path("work"), vocabulary: int = 16_384, seed: int = 0) -> None:
    """Write tokenizer.json (kept if it is there), train.npy, validation.npy and token_counts.tsv; a process for each file."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / "tokenizer.json"
    if not path.exists():
        train_tokenizer(paragraphs(files), vocabulary).save(str(path))
    with ProcessPoolExecutor() as pool:
        parts = list(pool.map(rows_of, files, [path] * len(files), range(seed, seed + len(files))))
    for split in ("train", "validation"):
        array = np.concatenate([part[split] for part in parts])
        np.save(output / f"{split}.npy", array)
        texts, tokens = np.count_nonzero(array == CLS), np.count_nonzero(array)
        typer.echo(f"{split}: {texts} texts in {len(array)} rows, {tokens} tokens, {tokens / array.size:.1%} filled")
    counts = count_tokens(np.load(output / "train.npy"), Tokenizer.from_file(str(path)))
    (output / "token_counts.tsv").write_text(
        "".join(f"{token}\t{count}\n" for token, count in counts), encoding="utf-8"
    )
