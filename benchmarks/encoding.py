"""Throughput of `Encoder.encode` against `SentenceTransformer.encode`: same weights, texts and cores, as ratios.

The peers take turns, so that noise hits both alike. Each ratio is the median of the repeats, with the lowest and the highest;
"at their best" sets the fastest run of one against the fastest of the other, which a busy machine disturbs least. "Of peak" is
how near ours comes to the fastest that this CPU multiplies matrices, all else that a transformer does included: its ceiling.

BERTFLOW_DATA=../shared/data python benchmarks/encoding.py [--quick]
"""

from __future__ import annotations

import lzma
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import transformers
import typer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from bertflow import Encoder, InputError
from bertflow.arrays import cosine_of_pairs
from bertflow.data import mini_folder, sample_pairs, sample_sentences
from bertflow.encoders.packing import TOKENS, PackedLinear
from bertflow.evaluation import load_task, metric_value
from bertflow.storage.folders import find_data

Encode = Callable[[list[str]], np.ndarray]
BATCH_SIZES = {"cpu": (32, 128), "cuda": (128, 512, 2048)}


def main(quick: bool = False, repeats: int = 5, texts: int = 0, device: list[str] = [], model: list[str] = []) -> None:  # noqa: B006
    """Print a markdown table of ratios.

    Args:
        quick: Two repeats, few texts.
        repeats: Turns of each contender.
        texts: How many of each mix; default: by model and device.
        device: cpu, cuda; default: what is there.
        model: mini, BERT-base-shaped; default: both.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    repeats = 2 if quick else repeats
    devices = device or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    threads = torch.get_num_threads()
    print(f"ours ÷ SentenceTransformer in sentences a second; {threads} CPU threads, {repeats} repeats\n")
    print(
        "| model | device | texts | peer's batch | ratio | lowest–highest | at their best | largest difference | texts/s "
        + "| of peak |\n"
        + "|---" * 10
        + "|"
    )
    with tempfile.TemporaryDirectory() as scratch:
        models = {"mini": mini_folder(), "BERT-base-shaped": base_shaped(Path(scratch))}
        for place in devices:
            for name in model or models:
                count = texts or (200 if quick else {"cpu": 2000, "cuda": 50_000}[place])
                count = count if name == "mini" or place == "cuda" else max(count // 5, 50)
                for mix, sentences in mixes(count).items():
                    for line in compare(models[name], place, sentences, repeats):
                        print(f"| {name} | {place} | {len(sentences)} {mix} | {line}", flush=True)
        if "cuda" in devices:
            print_cost_of_bfloat16()


def compare(folder: Path, device: str, sentences: list[str], repeats: int) -> Iterator[str]:
    """Time the peers in turns, and yield the rest of a table row for each batch size of the other."""
    dtypes = [torch.float32] if device == "cpu" else [torch.bfloat16, torch.float32]
    for dtype in dtypes:
        transformer = Transformer(str(folder), model_kwargs={"dtype": dtype})
        other = SentenceTransformer(
            modules=[transformer, Pooling(transformer.model.config.hidden_size, "mean")], device=device
        )
        encoder = Encoder(folder, "mean", device=device, dtype=dtype)
        peers: dict[str, Encode] = {"ours": encoder.encode}
        for size in BATCH_SIZES[device]:
            peers[f"{size}"] = partial(other.encode, batch_size=size, show_progress_bar=False)
        for encode in peers.values():
            encode(sentences[:64])  # the first run sets things up
        times, vectors = in_turns(peers, sentences, repeats)
        times["best"] = np.min([times[f"{size}"] for size in BATCH_SIZES[device]], axis=0)
        difference = np.abs(vectors["ours"] - vectors[f"{BATCH_SIZES[device][0]}"]).max()
        peak = f"{work(encoder, sentences) / times['ours'].min() / peak_rate():.0%}" if device == "cpu" else ""
        for peer in [*peers, "best"][1 : None if len(peers) > 2 else -1]:
            ratios = times[peer] / times["ours"]
            kind = "" if len(dtypes) == 1 else f" {str(dtype).removeprefix('torch.')}"
            spread = f"{ratios.min():.2f}–{ratios.max():.2f} | {times[peer].min() / times['ours'].min():.2f}×"
            rate = len(sentences) / times["ours"].min()
            yield f"{peer}{kind} | {np.median(ratios):.2f}× | {spread} | {difference:.1e} | {rate:,.0f} | {peak} |"


def in_turns(
    peers: dict[str, Encode], sentences: list[str], repeats: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return each peer's seconds (repeats,) and vectors (n, d)."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(repeats):
        for name, encode in peers.items():
            start = time.perf_counter()
            vectors[name] = encode(sentences)
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}, vectors


def work(encoder: Encoder, sentences: list[str]) -> float:
    """Floating point operations in the multiplications of a BERT, for the distinct sentences, padding not counted."""
    config = encoder.model.config
    lengths = np.array([len(row) for row in encoder._tokenize(list(dict.fromkeys(sentences)))[0]], dtype=float)
    linear = 8 * config.hidden_size**2 + 4 * config.hidden_size * config.intermediate_size
    return config.num_hidden_layers * float(lengths.sum() * linear + 4 * (lengths**2).sum() * config.hidden_size)


@cache
def peak_rate() -> float:
    """Floating point operations a second of the fastest float32 multiplication of this CPU: large, its weights packed."""
    layer = PackedLinear(768, 3072)
    x, times = torch.randn(TOKENS, 768), []
    with torch.inference_mode():
        for _ in range(20):
            start = time.perf_counter()
            layer(x)
            times.append(time.perf_counter() - start)
    return 2 * TOKENS * 768 * 3072 / min(times)


def mixes(count: int) -> dict[str, list[str]]:
    """Return real texts of different lengths: STS-B and Wikipedia where these are at hand, else what ships."""
    found: dict[str, list[str]] = {}
    try:
        folder = find_data()
        found["STS-B"] = list(load_task("STS-B").fit_sentences)[:count]
        for file in sorted((folder.parent / "text").glob("*.txt.xz"))[:1]:
            with lzma.open(file, "rt", encoding="utf-8") as lines:
                split = (re.split(r"(?<=[.!?]) +", line.strip()) for line in lines)
                sentences = (sentence for parts in split for sentence in parts if sentence)
                found["Wikipedia"] = list(islice(sentences, count))
    except InputError:
        pairs = sample_pairs()
        shipped = [*sample_sentences(), *(pair.sentence1 for pair in pairs), *(pair.sentence2 for pair in pairs)]
        found["sample"] = shipped[:count]
    return found


def base_shaped(folder: Path) -> Path:
    """Write a random model of BERT-base's shape with mini's tokenizer, and return its folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(mini_folder())
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer))
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def print_cost_of_bfloat16() -> None:
    """Print how much STS-B Spearman mini loses in bfloat16."""
    try:
        task = load_task("STS-B")
    except InputError:
        return
    pairs = task.subsets["all"]
    scores = []
    for dtype in (torch.float32, torch.bfloat16):
        encoder = Encoder("mini", device="cuda", dtype=dtype)
        a, b = encoder.encode(pairs.sentences1), encoder.encode(pairs.sentences2)
        scores.append(metric_value("spearman", cosine_of_pairs(a, b), pairs.gold))
    full, half = scores
    print(f"\nSTS-B Spearman ×100 of mini: float32 {full:.2f}, bfloat16 {half:.2f} ({half - full:+.2f})")


if __name__ == "__main__":
    typer.run(main)
