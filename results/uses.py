"""A table of uses: recipes × what sentence vectors are used for, on several encoders; writes results/uses.md.

    python results/uses.py run mini --tasks all          # each task is kept in results/uses/mini.json as soon as it is done
    python results/uses.py run ENCODERS/bert-base-cased --sample 600 --tasks STS-B,parade,qqp,banking77
    python results/uses.py write

Only development data: STS-B dev, STS12, STS13, and the sets of `tasks` (relatedness, paraphrase, search, clusters, Chinese).
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from shared_data import use_shared_data

from bertflow import Encoder
from bertflow.evaluation import PairSet, Task, load_task
from bertflow.evaluation.comparison import compare_recipes
from bertflow.evaluation.tasks.clusters import ClusterTask
from bertflow.evaluation.tasks.pairs import PairTask
from bertflow.storage.atomic import atomic_file

HERE = Path(__file__).parent
FAMILIES = {
    "STS": ("STS-B", "STS12", "STS13"),
    "relatedness": ("semrel",),
    "paraphrase": ("parade", "qqp"),
    "search": ("dbpedia", "cisi"),
    "clusters": ("banking77",),
    "Chinese": ("zh-sts-dev", "lcqmc", "bq"),
}
ENGLISH = tuple(name for family, names in FAMILIES.items() if family != "Chinese" for name in names)
RECIPES = ("raw", "whitening", "whitening-half", "flow", "static", "best")
RIVALS = ("sn", "natsv-1", "soft-zca", "mean-direction", "sif", "usif", "zipfian", "best-256", "static-256")
SHOWN = {  # on the first page
    "bert-base-cased": ("BERT-base-cased", ("raw", "flow", "best")),
    "SmolLM2-135M": ("SmolLM2-135M", ("raw", "prompt-half", "best", "best-prompt")),
    "mini": ("mini (9 M, ships inside)", ("raw", "flow", "best")),
    "albert-tiny-chinese": ("ALBERT-tiny 中文", ("raw", "whitening", "flow", "static", "best")),
    "all-MiniLM-L6-v2": ("all-MiniLM-L6-v2, tuned with labels", ("raw", "best")),
}
LONGEST = 128  # tokens read of a text
app = typer.Typer(add_completion=False)


@app.command()
def run(
    encoder: str,
    tasks: Annotated[str, typer.Option(help="Comma-separated, or `all` of English, or `zh`.")] = "all",
    recipes: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(RECIPES),
    sample: Annotated[int, typer.Option(help="Pairs, or texts to cluster, drawn of each task; 0 for all.")] = 0,
    seeds: Annotated[int, typer.Option(help="Fits of what is random.")] = 1,
) -> None:
    """Fit each recipe on each task's own texts, without labels, and score it."""
    use_shared_data()
    warnings.simplefilter("ignore")
    names = {"all": ENGLISH, "zh": FAMILIES["Chinese"]}.get(tasks) or tuple(tasks.split(","))
    loaded = Encoder(encoder, max_length=LONGEST, device="cpu")
    place = HERE / "uses" / f"{Path(encoder).name}.json"
    known = json.loads(place.read_text()) if place.is_file() else {}
    for name in names:
        there = known.setdefault(name, {})
        missing = [recipe for recipe in recipes.split(",") if recipe not in there]
        if not missing:
            continue
        task = sampled(load_task(name, split="dev" if name == "STS-B" else "test"), sample)
        found = compare_recipes(loaded, [task], missing, seeds=range(seeds), show_progress_bar=False)
        for recipe in missing:
            result = found.results[recipe][task.name]
            score = result.score
            there[recipe] = {"value": result.value, "low": score.low, "high": score.high, "size": score.size}
            there[recipe] |= {"metric": score.metric, "deviation": result.deviation, "p": result.p_value}
        with atomic_file(place) as temporary:
            temporary.write_text(json.dumps(known, indent=1) + "\n")
        typer.echo(f"{name}: " + ", ".join(f"{recipe} {there[recipe]['value']:.1f}" for recipe in missing))


def sampled(task: Task, count: int) -> Task:
    """Draw pairs or texts at random, the same ones each time; fit on these texts alone. Search stays whole."""
    rng = np.random.default_rng(0)
    if isinstance(task, PairTask):
        total = sum(map(len, task.subsets.values()))
        share = min(1.0, count / total) if count else 1.0
        subsets = {}
        for name, pairs in task.subsets.items():
            rows = np.sort(rng.permutation(len(pairs))[: max(2, round(share * len(pairs)))])
            first, second = ([texts[i] for i in rows] for texts in (pairs.sentences1, pairs.sentences2))
            subsets[name] = PairSet(first, second, pairs.gold[rows])
        drawn = replace(task, subsets=subsets)
        return replace(drawn, fit_sentences=drawn.sentences)
    if isinstance(task, ClusterTask) and count and count < len(task.texts):
        rows = np.sort(rng.permutation(len(task.texts))[:count])
        return replace(task, texts=[task.texts[i] for i in rows], labels=[task.labels[i] for i in rows])
    return task


@app.command()
def write() -> None:
    """Write results/uses.md from what is known."""
    text = (HERE / "uses-head.md").read_text()
    for place in sorted((HERE / "uses").glob("*.json"), key=lambda file: (file.stem != "mini", file.stem)):
        text += f"\n## {place.stem}\n\n{_table(json.loads(place.read_text()))}"
    (HERE / "uses.md").write_text(text)
    known = {place.stem: json.loads(place.read_text()) for place in (HERE / "uses").glob("*.json")}
    english = {
        "STS": "STS",
        "relatedness": "relatedness",
        "search": "search",
        "clusters": "clusters",
        "paraphrase": "paraphrase",
    }
    _fill(HERE.parent / "README.md", "uses", _short(known, english))
    chinese = {"zh-sts-dev": "STS-B 中文 dev", "lcqmc": "LCQMC", "bq": "BQ"}
    _fill(HERE.parent / "README.zh-CN.md", "uses-zh", _short(known, chinese))


def _fill(page: Path, mark: str, table: str) -> None:
    """Replace what stands between two marks of a page."""
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(f"<!-- {mark}: python results/uses.py write -->\n")
    _, end, tail = rest.partition(f"<!-- /{mark} -->")
    if not begin or not end:
        raise typer.BadParameter(f"{page.name} has no marks for {mark!r}.")
    page.write_text(f"{head}{begin}{table}{end}{tail}", encoding="utf-8")


def _short(known: dict[str, dict[str, dict[str, dict[str, float]]]], columns: dict[str, str]) -> str:
    """The first page's table: encoders and recipes × families; the best of an encoder in bold."""
    rows = [f"| | {' | '.join(columns.values())} |", "|---|" + "---:|" * len(columns)]
    for encoder, (title, recipes) in SHOWN.items():
        if encoder not in known or _mean(known[encoder], next(iter(columns)), "raw") is None:
            continue
        values = {recipe: [_mean(known[encoder], family, recipe) for family in columns] for recipe in recipes}
        values = {recipe: cells for recipe, cells in values.items() if any(cell is not None for cell in cells)}
        best = [max(filter(None, column), default=None) for column in zip(*values.values(), strict=True)]
        for recipe, cells in values.items():
            shown = [
                "" if v is None else f"**{v:.1f}**" if v == top and len(values) > 1 else f"{v:.1f}"
                for v, top in zip(cells, best, strict=True)
            ]
            rows.append(f"| {title}, `{recipe}` | {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def _families(known: dict[str, dict[str, dict[str, float]]]) -> dict[str, list[str]]:
    found = {family: [name for name in names if known.get(name)] for family, names in FAMILIES.items()}
    return {family: names for family, names in found.items() if names}


def _mean(known: dict[str, dict[str, dict[str, float]]], family: str, recipe: str) -> float | None:
    names = _families(known).get(family, [family] if family in known else [])
    values = [known[name][recipe]["value"] for name in names if recipe in known[name]]
    return float(np.mean(values)) if names and len(values) == len(names) else None


def _table(known: dict[str, dict[str, dict[str, float]]]) -> str:
    tasks = [name for names in FAMILIES.values() for name in names if known.get(name)]
    families = _families(known)
    recipes = [recipe for recipe in (*RECIPES, *RIVALS) if any(recipe in known[name] for name in tasks)]
    sizes = " | ".join(f"{name} ({known[name]['raw']['size']})" for name in tasks)
    rows = [f"| | {sizes} | average of families |", "|---" * (len(tasks) + 2) + "|"]
    for recipe in recipes:
        cells = [_cell(known[name].get(recipe)) for name in tasks]
        means = [
            float(np.mean([known[name][recipe]["value"] for name in names]))
            for names in families.values()
            if all(recipe in known[name] for name in names)
        ]
        whole = len(means) == len(families)
        rows.append(f"| `{recipe}` | {' | '.join(cells)} | {f'{np.mean(means):.1f}' if whole else ''} |")
    return "\n".join(rows) + "\n"


def _cell(found: dict[str, float] | None) -> str:
    """A value with half its interval, and a star where it differs from raw."""
    if found is None:
        return ""
    spread = "" if found["low"] is None else f" ±{(found['high'] - found['low']) / 2:.1f}"
    return f"{found['value']:.1f}{spread}{'*' if (found['p'] or 1) < 0.05 else ''}"


if __name__ == "__main__":
    app()
