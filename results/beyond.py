"""The presets `static` and `best` against the paper's, on the seven STS sets and QNLI, fitted on target, five seeds.

    python results/beyond.py --encoder mini [--encoder ANOTHER …]

Prints a table for each encoder. What was tried before is in results/beyond.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from bertflow.calibrators.names import is_random, make_calibrator
from bertflow.encoders.joined import WORDS_IN_CONTEXT, JoinedEncoder, calibrator_for
from shared_data import use_shared_data

from bertflow.calibrators import Calibrator
from bertflow.encoders.token_table import StaticEncoder
from bertflow.encoders.transformer import Encoder, TextEncoder
from bertflow.evaluation import PairSet, PairTask, evaluate_task, load_task
from bertflow.paper.nli_data import LABELS, read_nli
from bertflow.paper.published import SEVEN
from bertflow.storage.folders import find_data
from bertflow.storage.remembering import cached

NLI = {"SNLI": "snli_dev.jsonl", "MNLI": "mnli_train_10k.tsv"}


def main(
    encoder: Annotated[list[str], typer.Option(help="Model name or folder.")] = ["mini"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Seeds of the flows.")] = 5,
    task: Annotated[
        list[str], typer.Option(help="Default: the seven sets and QNLI; others: STS-B-dev, SICK-R-train, SNLI…")
    ] = [],  # noqa: B006
) -> None:
    """Print, for each encoder, raw vectors, whitening, the presets paper and best, and their difference."""
    names = task or [*SEVEN, "QNLI"]
    tasks = [load_named(name) for name in names]
    for name in encoder:
        contextual = Encoder(name)
        pooling, words_only = WORDS_IN_CONTEXT
        words = Encoder(name, pooling, words_only=words_only)
        tables = [StaticEncoder.distill(words, random_state=seed) for seed in range(seeds)]
        rows: dict[str, list[np.ndarray]] = {"raw": [], "whitening": [], "paper": [], "static": [], "best": []}
        for each in tasks:
            for row, kind in {"raw": "none", "whitening": "whitening", "paper": "flow-paper"}.items():
                made = [make_calibrator(kind, seed) for seed in (range(seeds) if is_random(kind) else range(1))]
                rows[row].append(np.array([score(each, contextual, calibrator) for calibrator in made]))
            weighted = [table.weighted_by(each.fit_sentences) for table in tables]
            joined = [JoinedEncoder(table, words) for table in weighted]
            for row, encoders in {"static": weighted, "best": joined}.items():
                made = [calibrator_for(one, random_state=seed) for seed, one in enumerate(encoders)]
                rows[row].append(np.array([score(each, *pair) for pair in zip(encoders, made, strict=True)]))
        print_table(Path(name).name, tasks, names, rows)


def load_named(name: str) -> PairTask:
    """Load a task by its name; with -train or -dev at its end, that part of it. SNLI and MNLI: what follows, what does not."""
    if name in NLI:
        return entailed_or_contradicted(name)
    whole, _, part = name.rpartition("-")
    return load_task(whole, split=part) if part in ("train", "dev") else load_task(name)


def entailed_or_contradicted(name: str) -> PairTask:
    """Return the pairs of an NLI set as a task: 1 where the second sentence follows, 0 where it contradicts; others left."""
    rows = read_nli(find_data() / "nli" / NLI[name])
    kept = [i for i, label in enumerate(rows.labels) if label != LABELS["neutral"]]
    gold = np.array([float(rows.labels[i] == LABELS["entailment"]) for i in kept])
    pairs = PairSet([rows.premises[i] for i in kept], [rows.hypotheses[i] for i in kept], gold)
    return PairTask(name, "auc", {"all": pairs}, list(dict.fromkeys([*pairs.sentences1, *pairs.sentences2])))


def score(task: PairTask, encoder: TextEncoder, calibrator: Calibrator) -> float:
    """Spearman (QNLI: AUC) ×100 of a calibrator that was fitted on the task's own sentences."""
    embed = embedder(encoder)
    fitted = calibrator.fit(embed(list(task.fit_sentences)))
    setting = "all" if len(task.subsets) == 1 else "wmean"
    return evaluate_task(task, lambda texts: fitted.transform(embed(texts)), setting, resamples=0).value


def embedder(encoder: TextEncoder) -> Callable[[list[str]], np.ndarray]:
    """Return its ``encode``, with a memory on disk for what goes through the transformer."""
    if isinstance(encoder, JoinedEncoder):
        contextual = cached(encoder.contextual)
        return lambda texts: np.hstack([encoder.static.encode(texts), contextual(texts)])
    return encoder.encode if isinstance(encoder, StaticEncoder) else cached(encoder)


def print_table(encoder: str, tasks: list[PairTask], names: list[str], rows: dict[str, list[np.ndarray]]) -> None:
    """Mean ± sd over seeds; the average is over the sets that are scored by Spearman, if there are any."""
    sts = [i for i, task in enumerate(tasks) if task.metric == "spearman"]
    header = [*names, *(["average of STS"] if sts else [])]
    typer.echo(f"\n{encoder}, first-last-avg\n\n| | {' | '.join(header)} |\n|---{'|---:' * len(header)}|")
    for preset in ("static", "best"):
        rows[f"{preset} − paper"] = [a - b for a, b in zip(rows[preset], rows["paper"], strict=True)]
    for name, values in rows.items():
        cells = [*values, *([np.mean([values[i] for i in sts], axis=0)] if sts else [])]
        texts = [f"{v.mean():.2f}" + (f" ± {v.std(ddof=1):.2f}" if len(v) > 1 else "") for v in cells]
        typer.echo(f"| {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
