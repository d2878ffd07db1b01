"""Is the judgement without labels right? Each encoder is judged by the precedents of all others; writes results/advise.md.

    python results/advise.py measure mini                       # kept in results/advise/mini.json, set by set
    python results/advise.py measure ENCODERS/gte-small --small
    python results/advise.py few                                # what little text costs, kept in results/advise-few.json
    python results/advise.py write                              # the page, and the precedents that ship

Only development data: STS-B dev, STS12, STS13, and the sets of `tasks`. What is sampled is drawn with seed 0.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from shared_data import use_shared_data

from bertflow import BertFlow, Encoder
from bertflow.evaluation import ClusterTask, PairSet, PairTask, SearchTask, Task, difference, load_task
from bertflow.evaluation.judgement import RECIPES, rule
from bertflow.evaluation.judgement.evidence import Evidence, SpaceEvidence
from bertflow.evaluation.judgement.result import RAW
from bertflow.evaluation.judgement.seen import see
from bertflow.recipes import readings
from bertflow.storage.atomic import atomic_file
from bertflow.storage.remembering import Remembering

HERE = Path(__file__).parent
WORK, PAGE, FEW = HERE / "advise", HERE / "advise.md", HERE / "advise-few.json"
COUNTS = (50, 100, 200, 500, 2000, 5000)
PRECEDENTS = Path(rule.__file__).with_name("precedents.json")
PURPOSES = {
    **dict.fromkeys(("STS-B", "STS12", "STS13", "semrel"), "similarity"),
    **dict.fromkeys(("parade", "qqp"), "paraphrase"),
    **dict.fromkeys(("dbpedia", "cisi"), "search"),
    "banking77": "clusters",
    "zh-sts-dev": "similarity",
    **dict.fromkeys(("lcqmc", "bq"), "paraphrase"),
}
ENGLISH = tuple(PURPOSES)[:9]
FLOW = "flow"
SLACK = 0.5  # points that a verdict may lose against leaving the encoder alone
SIZES = {
    False: (1200, 700, 60, 1200),
    True: (700, 400, 30, 800),
}  # texts of pairs; documents, words of each; texts of clusters
app = typer.Typer(add_completion=False)


@app.command()
def measure(
    encoder: str,
    tasks: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(ENGLISH),
    small: Annotated[bool, typer.Option("--small", help="Smaller samples, for larger encoders.")] = False,
) -> None:
    """Measure what each recipe gains, and the evidence that needs no labels."""
    use_shared_data()
    warnings.simplefilter("ignore")
    place = WORK / f"{Path(encoder).name}.json"
    known = json.loads(place.read_text()) if place.is_file() else {}
    for name in tasks.split(","):
        if name in known:
            continue
        task = sampled(load_task(name, split="dev" if name == "STS-B" else "test"), *SIZES[small])
        seen = see(task.fit_sentences, encoder, labels=task)
        scores = {recipe: task.score(encode, resamples=1000) for recipe, encode in seen.encodes.items()}
        leads = {recipe: difference(score, scores[RAW]) for recipe, score in scores.items() if recipe != RAW}
        known[name] = {
            "size": scores[RAW].size,
            "texts": len(task.fit_sentences),
            "raw": round(scores[RAW].value, 2),
            "gains": {recipe: round(lead.difference, 2) for recipe, lead in leads.items()},
            "half": {recipe: round((lead.high - lead.low) / 2, 2) for recipe, lead in leads.items()},
            **evidence_in_short(seen.evidence()),
        }
        with atomic_file(place) as temporary:
            temporary.write_text(json.dumps(known, indent=1) + "\n")
        typer.echo(f"{name}: {known[name]['gains']}")


def evidence_in_short(evidence: Evidence) -> dict[str, Any]:
    """What the rule asks for."""
    raw = evidence.spaces[RAW]
    figures = {"unknown": evidence.unknown or 0.0, "uniformity": raw.uniformity, "mean_cosine": raw.mean_cosine}
    return {"tuned": evidence.tuned} | {name: round(value, 2) for name, value in figures.items()}


def sampled(task: Task, texts: int, documents: int, words: int, clustered: int) -> Task:
    """Draw a part of a task; recipes are fitted on the texts of that part alone."""
    rng = np.random.default_rng(0)
    if isinstance(task, PairTask):
        first = [text for pairs in task.subsets.values() for text in pairs.sentences1]
        second = [text for pairs in task.subsets.values() for text in pairs.sentences2]
        gold = np.concatenate(list(task.gold.values()))
        rows = np.sort(rng.permutation(len(gold))[: texts // 2])
        some = PairSet([first[i] for i in rows], [second[i] for i in rows], gold[rows])
        drawn = replace(task, subsets={"all": some}, setting="all")
        return replace(drawn, fit_sentences=drawn.sentences)
    if isinstance(task, ClusterTask):
        rows = np.sort(rng.permutation(len(task.texts))[:clustered])
        return replace(task, texts=[task.texts[i] for i in rows], labels=[task.labels[i] for i in rows])
    return sampled_search(task, documents, words, rng) if isinstance(task, SearchTask) else task


def sampled_search(task: SearchTask, count: int, words: int, rng: np.random.Generator) -> SearchTask:
    """At most 100 queries, some of the relevant documents, and others, all cut to their first words."""
    queries = [task.judged[i] for i in np.sort(rng.permutation(len(task.judged))[:100])]
    wanted = list(dict.fromkeys(d for query in queries for d, grade in task.relevant[query].items() if grade > 0))
    kept = set(rng.permutation(wanted)[: count // 2].tolist())
    for document in rng.permutation(list(task.documents)):
        if len(kept) >= count:
            break
        kept.add(str(document))
    relevant = {query: {d: g for d, g in task.relevant[query].items() if d in kept} for query in queries}
    relevant = {query: grades for query, grades in relevant.items() if any(grade > 0 for grade in grades.values())}
    short = {name: " ".join(text.split()[:words]) for name, text in task.documents.items() if name in kept}
    asked = {query: " ".join(task.queries[query].split()[:words]) for query in relevant}
    return SearchTask(task.name, asked, short, relevant)


@app.command()
def few() -> None:
    """Score recipes fitted on few sentences: mini, STS-B dev, three draws of each number."""
    use_shared_data()
    task = load_task("STS-B", split="dev")
    encoder = Encoder("mini", device="cpu")
    known = Remembering(encoder, readings(RECIPES, encoder))
    found: dict[str, dict[str, float]] = {}
    for count in COUNTS:
        draws = [np.random.default_rng(seed).permutation(task.fit_sentences)[:count].tolist() for seed in range(3)]
        found[str(count)] = {
            recipe: round(float(np.mean([fitted_score(task, known, recipe, draw) for draw in draws])), 2)
            for recipe in RECIPES
        }
        typer.echo(f"{count}: {found[str(count)]}")
    with atomic_file(FEW) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n")


def fitted_score(task: Task, encoder: Any, recipe: str, texts: list[str]) -> float:
    """The score of a recipe fitted on these texts."""
    return task.score(BertFlow.fit(texts, encoder, recipe=recipe).encode, resamples=0).value


@app.command()
def write() -> None:
    """Write the page and the precedents from what is measured."""
    cases = {
        (place.stem, name): case
        for place in sorted(WORK.glob("*.json"))
        for name, case in json.loads(place.read_text()).items()
    }
    more = of_uses()
    every = [precedent(*key, case, more.get(key, {})) for key, case in cases.items() if case["unknown"] < rule.UNKNOWN]
    rows = [json.dumps(asdict(one), ensure_ascii=False) for one in every]
    PRECEDENTS.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    found = {key: judged(key, case, every) for key, case in cases.items()}
    PAGE.write_text(page(cases, found), encoding="utf-8")


def of_uses() -> dict[tuple[str, str], dict[str, float]]:
    """Gains of the flow in the table of uses, on larger samples of the same sets: it is too slow to be weighed by default."""
    found = {}
    for place in sorted((HERE / "uses").glob("*.json")):
        for name, scores in json.loads(place.read_text()).items():
            if FLOW in scores and "raw" in scores:
                found[place.stem, name] = {FLOW: round(scores[FLOW]["value"] - scores["raw"]["value"], 2)}
    return found


def precedent(encoder: str, name: str, case: dict[str, Any], more: dict[str, float]) -> rule.Precedent:
    """A case as the rule knows it."""
    gains = case["gains"] | ({} if case["tuned"] else more)  # the table of uses reads tuned encoders in another way
    return rule.Precedent(encoder, name, PURPOSES[name], rule.counts_as_tuned(evidence_of(case)), gains)


def evidence_of(case: dict[str, Any]) -> Evidence:
    """The evidence, as far as the rule asks for it."""
    space = SpaceEvidence(case["mean_cosine"], case["uniformity"], effective_rank=0.0, hubness=0.0, agreement=0.0)
    return Evidence(case["texts"], case["tuned"], case["unknown"], spaces=dict.fromkeys((RAW, *case["gains"]), space))


def judged(key: tuple[str, str], case: dict[str, Any], every: list[rule.Precedent]) -> dict[str, Any]:
    """What the rule says by the precedents of all other encoders, and what came of it."""
    others = [one for one in every if one.encoder != key[0]]
    said = rule.decide(evidence_of(case), PURPOSES[key[1]], others)
    gains = {RAW: 0.0, **case["gains"]}
    told = max(said.gains, key=lambda name: said.gains[name].value) if said.gains else RAW
    return {
        "verdict": said.verdict,
        "recipe": said.recipe,
        "came": gains[said.recipe],
        "best": max(gains, key=lambda name: gains[name]),
        "most": max(gains.values()),
        "told": told,
        "gain": said.gain,
        "inside": said.gain.low <= gains[told] <= said.gain.high,
    }


def page(cases: dict[tuple[str, str], Any], found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The whole page."""
    rows = list(found.values())
    kept = [row["came"] >= -SLACK for row in rows]
    widths = [row["gain"].high - row["gain"].low for row in rows if row["told"] != RAW]
    taken, most = sum(row["came"] for row in rows), sum(row["most"] for row in rows)
    encoders = list(dict.fromkeys(encoder for encoder, _ in cases))
    summary = [
        ("loses at most half a point against leaving the encoder alone", 100 * np.mean(kept), "≥ 90 %"),
        ("of what the best recipe of each case would gain, taken", 100 * taken / most, "≥ 70 %"),
        ("abstains (*cannot tell*)", 100 * np.mean([row["verdict"] == "cannot tell" for row in rows]), "≤ 20 %"),
        ("the interval covers what came", 100 * np.mean([row["inside"] for row in rows]), "≥ 85 %"),
    ]
    text = HEAD.format(cases=len(rows), encoders=", ".join(encoders), recipes=", ".join(RECIPES))
    text += "| | measured | wanted |\n|---|---:|---:|\n"
    text += "".join(f"| {name} | {value:.0f} % | {wanted} |\n" for name, value, wanted in summary)
    text += f"| median width of the interval, points | {np.median(widths):.1f} | ≤ 8 |\n"
    text += "\n## What falls short\n\n"
    text += "".join(f"- {line}\n" for line in shortcomings(found)) or "Nothing.\n"
    return text + "\n## All cases\n\n" + table(cases, found) + averages(cases) + table_few()


def averages(cases: dict[tuple[str, str], Any]) -> str:
    """Mean gain of each recipe by encoder."""
    names = RECIPES[1:]
    text = "\n## What each recipe gained on average\n\n"
    text += (
        f"| encoder | sets | uniformity of raw vectors | {' | '.join(names)} |\n|---|---:|---|{'---:|' * len(names)}\n"
    )
    for encoder in dict.fromkeys(encoder for encoder, _ in cases):
        mine = [case for (owner, _), case in cases.items() if owner == encoder]
        spread = [case["uniformity"] for case in mine]
        gains = [np.mean([case["gains"][name] for case in mine]) for name in names]
        told = " | ".join(f"{gain:+.1f}" for gain in gains)
        text += f"| {encoder} | {len(mine)} | {min(spread):.1f} to {max(spread):.1f} | {told} |\n"
    return text


def table_few() -> str:
    """Scores by the number of sentences."""
    if not FEW.is_file():
        return ""
    rows = json.loads(FEW.read_text())
    text = "\n## Too little text\n\nmini, Spearman ×100 on STS-B dev, fitted on so many sentences of STS-B; means of three "
    text += "draws. `python results/advise.py few`\n\n"
    text += f"| sentences | {' | '.join(RECIPES)} |\n|---:{'|---:' * len(RECIPES)}|\n"
    for count, scores in rows.items():
        text += f"| {int(count):,} | {' | '.join(f'{scores[recipe]:.1f}' for recipe in RECIPES)} |\n"
    return text


HEAD = """# Is the judgement without labels right?

`bertflow advise` without labels says what came of other encoders and texts that looked like this. Here each of {cases} cases
({encoders}) is judged by the precedents of all *other* encoders. Recipes: {recipes}. Scores ×100: Spearman for graded pairs,
AUC for paraphrases, nDCG@10 for search, V-measure for clusters. Samples are small (at most 600 pairs, 700 documents, 1 200
texts to cluster), so that a gain is itself known to about ±2 points only; recipes were fitted on the sampled texts alone.

Made by `python results/advise.py measure ENCODER` and `python results/advise.py write`; development data only.

"""


def shortcomings(found: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Each case that lost, and each interval that missed."""
    lines = []
    for (encoder, name), row in found.items():
        if row["came"] < -SLACK:
            lines.append(f"**{encoder}, {name}**: {row['recipe']} was advised and lost {-row['came']:.1f} points.")
        elif not row["inside"]:
            low, high = row["gain"].low, row["gain"].high
            lines.append(f"{encoder}, {name}: what {row['told']} gained lies outside {low:+.1f} to {high:+.1f}.")
    return lines


def table(cases: dict[tuple[str, str], Any], found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """A row a case."""
    text = "| encoder | text | raw | verdict | expected of | gain, interval | came | the best |\n"
    text += "|---|---|---:|---|---|---:|---:|---|\n"
    for key, row in found.items():
        gain, gains = row["gain"], {RAW: 0.0, **cases[key]["gains"]}
        verdict = f"use {row['recipe']}" if row["verdict"] == "use" else row["verdict"]
        text += (
            f"| {key[0]} | {key[1]} | {cases[key]['raw']:.1f} | {verdict} | {row['told']} "
            f"| {gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f}) | {gains[row['told']]:+.1f} "
            f"| {row['best']} {row['most']:+.1f} |\n"
        )
    return text


if __name__ == "__main__":
    app()
