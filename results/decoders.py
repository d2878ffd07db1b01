"""Prompts, last tokens and echo, raw and calibrated, on decoders and masked models: writes results/decoders.md.

    python results/decoders.py encoders/SmolLM2-135M encoders/gemma-3-270m encoders/bert-base-cased mini [--only-known]

Every recipe is fitted on the texts of the task itself, without labels; larger tasks are sampled. One thread. Vectors and
scores are kept in bertflow's cache folder after every 128 texts, so that a run that was stopped goes on where it was; the page
is written again after every task.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
import typer
from shared_data import use_shared_data

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator, FlowCalibrator, Identity, Whitening
from bertflow.encoders.base import View
from bertflow.encoders.batching import pad
from bertflow.encoders.prompts import AGAINST, Echo, Prompt
from bertflow.encoders.token_table import TokenTable
from bertflow.encoders.transformer import Encoder
from bertflow.encoders.views import Pooled
from bertflow.evaluation import ClusterTask, PairSet, PairTask, SearchTask, Task, load_task
from bertflow.storage.atomic import atomic_file
from bertflow.storage.folders import cache_folder
from bertflow.storage.remembering import Remembering

PIECE = 128
BESIDE = ("first-last-avg", "prompt")
MAPS: dict[str, Callable[[], Calibrator]] = {
    "raw": Identity,
    "half": partial(Whitening, alpha=0.5),
    "three quarters": partial(Whitening, alpha=0.75),
    "whitening": Whitening,
    "flow": partial(FlowCalibrator, random_state=0),
}
Vectors: TypeAlias = dict[str, Matrix]
Scores: TypeAlias = dict[str, dict[str, dict[str, dict[str, float]]]]  # encoder, task, view, map


PLAIN: dict[str, View] = {name: Pooled(name) for name in ("first-last-avg", "last-token", "weighted-mean")}
PROMPTS: dict[str, View] = {
    "prompt": Prompt(),
    "prompt, layer -2": Prompt(layer=-2),
    "prompt, layer -3": Prompt(layer=-3),
}


def passes(architecture: str) -> list[dict[str, View]]:
    """Return the views of each pass through the transformer."""
    if architecture == "masked":
        return [PLAIN, PROMPTS | {"prompt with its bias": Prompt(subtract_bias=False)}]
    return [PLAIN, PROMPTS, {"contrast": Prompt(AGAINST[architecture])}, {"echo": Echo()}]


def sample_of_pairs(name: str, pairs: int | None = None, **options: Any) -> PairTask:
    """Return some pairs of a task, fitted on their own texts."""
    task = load_task(name, **options)
    (whole,) = task.subsets.values()
    rows = np.random.default_rng(0).permutation(len(whole))[:pairs]
    firsts, seconds = ([texts[row] for row in rows] for texts in (whole.sentences1, whole.sentences2))
    kept = PairSet(firsts, seconds, whole.gold[rows])
    return PairTask(name, task.metric, {"all": kept}, list(dict.fromkeys([*firsts, *seconds])))


def sample_of_search(name: str, queries: int, documents: int) -> SearchTask:
    """Return some queries with all that is relevant to them, and other documents up to a number."""
    task, rng = load_task(name), np.random.default_rng(0)
    asked = [task.judged[row] for row in rng.permutation(len(task.judged))[:queries]]
    wanted = dict.fromkeys(doc for query in asked for doc, grade in task.relevant[query].items() if grade > 0)
    others = [key for key in rng.permutation(list(task.documents)) if key not in wanted]
    kept = {str(key): task.documents[str(key)] for key in [*wanted, *others][: max(documents, len(wanted))]}
    relevant = {query: {d: g for d, g in task.relevant[query].items() if d in kept} for query in asked}
    return SearchTask(name, {query: task.queries[query] for query in asked}, kept, relevant)


def sample_of_clusters(name: str, labels: int) -> ClusterTask:
    """Return all texts of some labels."""
    task = load_task(name)
    chosen = set(np.random.default_rng(0).permutation(sorted(set(task.labels)))[:labels].tolist())
    rows = [(text, label) for text, label in zip(task.texts, task.labels, strict=True) if label in chosen]
    return ClusterTask(name, [text for text, _ in rows], [label for _, label in rows])


EXPLAINED = """`python results/decoders.py ENCODER …` wrote this page. Spearman ×100 (STS-B), AUC ×100 (QQP, PARADE), V-measure
(Banking77), nDCG@10 (DBpedia, CISI). Every map is fitted on the texts of the task itself, without labels, once: differences
under a point mean little. *half* and *three quarters* scale the principal axes that far towards whitening. *prompt* reads the
last token of `This sentence: "{text}" means in one word: "`; of a masked model the mask in `This sentence: "{text}" means
[MASK].`, the template's bias subtracted. *contrast* subtracts half the vectors of a prompt for irrelevant information; *echo*
reads the text twice. *tokens* is the table of tokens of `best`, α = ¾; what stands beside it is half-way, weighted alike or by
dimensions; `best-prompt` weighs alike. What has no figure was not measured. CISI has the longest texts; it is a sample of few
texts, so for larger models its whitened rows have fewer texts than dimensions.

What the tasks' samples hold:"""

TASKS: dict[str, Callable[[], Task]] = {
    "STS-B dev": partial(sample_of_pairs, "STS-B", split="dev"),
    "QQP": partial(sample_of_pairs, "qqp", 600),
    "PARADE": partial(sample_of_pairs, "parade"),
    "Banking77": partial(sample_of_clusters, "banking77", 25),
    "DBpedia": partial(sample_of_search, "dbpedia", 20, 500),
    "CISI": partial(sample_of_search, "cisi", 8, 300),
}


def main(
    encoder: Annotated[list[str], typer.Argument(help="Model names or folders.")],
    task: Annotated[list[str], typer.Option(help=f"Only these, of: {', '.join(TASKS)}.")] = [],  # noqa: B006
    flows: Annotated[bool, typer.Option(help="Flows too, on pairs.")] = True,
    more: Annotated[bool, typer.Option(help="Contrast and echo too.")] = True,
    bf16: Annotated[bool, typer.Option(help="In bfloat16 instead of float32.")] = False,
    only_known: Annotated[bool, typer.Option(help="Write the page of what was measured before.")] = False,
) -> None:
    """Measure what is not known yet, and write the page."""
    torch.set_num_threads(1)
    kept = cache_folder() / "decoders.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    scores: Scores = json.loads(kept.read_text()) if kept.exists() else {}
    for place in () if only_known else encoder:
        known = Remembering(Encoder(place, device="cpu", dtype=torch.bfloat16 if bf16 else None))
        of_encoder = scores.setdefault(Path(place).name + ", bfloat16" * bf16, {})
        if "seconds" not in of_encoder:
            of_encoder["seconds"] = {"pass": seconds(known)}
            if known.architecture == "decoder":
                of_encoder["seconds"]["prefix"] = {"once": gain_of_constant_prefix(known)}
        first, later = passes(known.architecture)[:2], passes(known.architecture)[2:] if more else []
        for name, views in (*product(task or TASKS, first), *product(task or TASKS, later)):
            measure(name, known, views, of_encoder.setdefault(name, {}), flows)
            with atomic_file(kept) as file:
                file.write_text(json.dumps(scores, indent=1))
            write(scores)
    write(scores)


def write(scores: Scores) -> None:
    """Write the page."""
    lines = ["# Prompts, last tokens and echo, calibrated afterwards", "", first_sentence(scores), "", EXPLAINED, ""]
    lines += [f"- {name}: {describe(name)}" for name in TASKS]
    for encoder, found in scores.items():
        tasks = [name for name in TASKS if name in found]
        rows = list(dict.fromkeys((view, kind) for name in tasks for view in found[name] for kind in found[name][view]))
        lines += ["", f"## {encoder}", "", f"| view | map | {' | '.join(tasks)} |", f"|---|---|{'---:|' * len(tasks)}"]
        for view, kind in rows:
            cells = [found[name].get(view, {}).get(kind) for name in tasks]
            lines.append(f"| {view} | {kind} | {' | '.join('' if cell is None else f'{cell:.1f}' for cell in cells)} |")
        spent = ", ".join(f"{name} {value:.1f}" for name, value in found["seconds"]["pass"].items())
        lines += ["", f"CPU seconds a thousand texts of STS-B dev, one thread, for the pass of: {spent}."]
        if "prefix" in found["seconds"]:
            ratio = found["seconds"]["prefix"]["once"]
            lines.append(f"With the constant beginning of the prompt computed once: {ratio:.2f} times as fast.")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def first_sentence(scores: Scores) -> str:
    """Say what a prompt is worth over first-last-avg."""
    said = []
    for encoder, found in scores.items():
        done = [found[name] for name in TASKS if "prompt" in found.get(name, {})]
        pairs = [(each["prompt"], each["first-last-avg"]) for each in done]
        for kind in ("raw", "half") if pairs else ():
            gains = [prompt[kind] - plain[kind] for prompt, plain in pairs]
            said.append(f"{encoder}, {kind}: {min(gains):+.1f} to {max(gains):+.1f}")
    return f"What a prompt is worth over first-last-avg, in points, from its worst task to its best: {'; '.join(said)}."


@cache
def load(name: str) -> Task:
    """Return a task of the table."""
    return TASKS[name]()


@cache
def describe(name: str) -> str:
    """Tell a task's size, and the length of its texts."""
    texts = load(name).sentences
    return f"{len(texts)} texts of {np.mean([len(text.split()) for text in texts]):.0f} words"


def measure(name: str, known: Any, views: dict[str, View], found: dict[str, dict[str, float]], flows: bool) -> None:
    """Score the views of a pass with every calibrator on a task; what is known already is left."""
    one, new = load(name), set(views) - set(found)
    if not new:
        return
    vectors = encode(known, views, one.sentences)
    if "contrast" in views:
        vectors["contrast"] = encode(known, PROMPTS, one.sentences)["prompt"] - 0.5 * vectors["contrast"]
    for view in views:
        maps = {kind: make for kind, make in MAPS.items() if kind != "flow" or (flows and wants_flow(one, view))}
        fitted = {kind: make().fit(vectors[view]) for kind, make in maps.items()}
        found[view] = {kind: score(one, each.transform(vectors[view])) for kind, each in fitted.items()}
        typer.echo(
            f"{known.name} {name} {view} " + " ".join(f"{kind} {value:.2f}" for kind, value in found[view].items())
        )
    if "prompt" in views and len(known.tokenizer) < 100_000:  # gemma's 262 000 tokens take longer than all the rest
        join(one, known, vectors | encode(known, PLAIN, one.sentences), found)


def wants_flow(one: Task, view: str) -> bool:
    """Whether a flow is trained, too: it takes minutes."""
    return isinstance(one, PairTask) and view in BESIDE


def join(one: Task, known: Any, vectors: Vectors, found: dict[str, dict[str, float]]) -> None:
    """Score parts beside each other, weighted alike and by their dimensions."""
    maps = {"tokens": Whitening(alpha=0.75, shrinkage=0.5)} | {view: Whitening(alpha=0.5) for view in BESIDE}
    vectors = {"tokens": table(known, one.sentences), **{view: vectors[view] for view in BESIDE}}
    latents = {view: maps[view].fit(vectors[view]).transform(vectors[view]) for view in maps}
    for together in (["tokens"], ["tokens", BESIDE[0]], ["tokens", BESIDE[1]], list(BESIDE), list(maps)):
        for kind, weight in {"alike": lambda x: 1, "by dimensions": lambda x: x.shape[1]}.items():
            parts = [(weight(x) / np.square(x).sum(1).mean()) ** 0.5 * x for x in map(latents.__getitem__, together)]
            found.setdefault(" beside ".join(together), {})[kind] = score(one, np.hstack(parts))


def table(known: Any, texts: list[str]) -> Matrix:
    """Return the vectors of texts from a table of tokens, which is kept on disk."""
    view, folder = TokenTable(), cache_folder() / "decoders" / known.fingerprint
    if not folder.exists():
        view.fit(known._encoder, texts).save(folder)
    view.restore(folder, {}, known._encoder)
    view.learn(texts)
    return view.encode(texts)


def encode(known: Any, views: dict[str, View], texts: list[str]) -> Vectors:
    """Return vectors (n, d) of each view of a pass, piece by piece."""
    readings = [view.fit(known, ()).reading for view in views.values()]
    pieces = [known.encode_views(texts[start : start + PIECE], readings) for start in range(0, len(texts), PIECE)]
    return dict(zip(views, map(np.concatenate, zip(*pieces, strict=True)), strict=True))


def score(one: Task, vectors: Matrix) -> float:
    """Judge vectors (n, d) of the task's sentences."""
    row = {text: number for number, text in enumerate(one.sentences)}
    return one.score(lambda texts: vectors[[row[text] for text in texts]], resamples=0).value


def seconds(known: Any, texts: int = 64) -> dict[str, float]:
    """CPU seconds a thousand texts of STS-B dev for each pass: of the process, since others may use the machine."""
    sample = load("STS-B dev").sentences[:texts]
    found = {}
    for views in passes(known.architecture):
        readings = [view.fit(known, ()).reading for view in views.values()]
        known._encoder.encode_views(sample[:8], readings)
        start = time.process_time()
        known._encoder.encode_views(sample, readings)
        found[next(iter(views))] = (time.process_time() - start) / texts * 1000
    return found


@torch.inference_mode()
def gain_of_constant_prefix(known: Any, texts: int = 48, batch: int = 16) -> float:
    """How many times as fast the default prompt is where the keys and values of its beginning are computed once."""
    template = Prompt().fit(known, ()).reading.templates[0]
    prefix, model = torch.tensor([template.pieces[0]]), known.model
    rows = sorted(known._tokenize(load("STS-B dev").sentences[:texts], template)[0], key=len)
    padded = [pad(rows[start : start + batch], known.tokenizer.pad_token_id) for start in range(0, texts, batch)]
    spent = {"whole": 0.0, "once": 0.0}
    for ids, mask in padded + padded:  # the first round warms up
        for way in spent:
            start = time.process_time()
            if way == "whole":
                model(input_ids=ids, attention_mask=mask)
            else:
                known_keys = model(input_ids=prefix, use_cache=True).past_key_values
                known_keys.batch_repeat_interleave(len(ids))
                rest = ids[:, prefix.shape[1] :]
                model(input_ids=rest, attention_mask=mask, past_key_values=known_keys)
            spent[way] += time.process_time() - start
    return spent["whole"] / spent["once"]


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
