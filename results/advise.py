"""Is the advice good? Encoders × the seven STS sets: what `bertflow advise` picks without labels, against what is best.

    python results/advise.py --encoder mini --encoder mini-nli --encoder encoders/all-MiniLM-L6-v2 --work work

Encoders are names or folders (`results/make.sh` makes mini-nli, `results/encoders.py` gets others). What is measured is kept
under --work, a file an encoder and set, so that a broken run goes on; results/advise.md is written from it, but for the log of
the development at its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from bertflow.calibrators.names import make_calibrator
from bertflow.encoders.joined import WORDS_IN_CONTEXT, JoinedEncoder, calibrator_for
from shared_data import use_shared_data

from bertflow.advice import advise
from bertflow.advice.candidates import BEST, POOLINGS, TOKEN_PRESETS, choose_poolings, load_encoder
from bertflow.advice.rule import EVEN, SLOPE
from bertflow.data import sample_pairs, sample_sentences
from bertflow.encoders.token_table import StaticEncoder
from bertflow.encoders.transformer import as_encoder
from bertflow.evaluation import PairSet, PairTask, evaluate_task, load_task
from bertflow.evaluation.comparison import OF_VIEWS as CALIBRATORS
from bertflow.evaluation.comparison import compare_recipes
from bertflow.paper.published import SEVEN
from bertflow.storage.atomic import atomic_file
from bertflow.storage.remembering import cached

HERE = Path(__file__).parent
MARK = "\n## Development, failures too\n"
DEVELOPED_ON = ("STS12", "STS13")  # and STS-B dev, whose test set is judged here
DEVELOPED_WITH = ("mini", "mini-nli")
ROWS = (100, 200, 500, 1000, 2000, 5000)
Cases = dict[tuple[str, str], dict[str, Any]]


def main(
    encoder: Annotated[list[str], typer.Option(help="Name or folder; repeat it.")],
    work: Annotated[Path, typer.Option(help="Folder for what was measured.")] = Path("advise-work"),
    output: Annotated[Path, typer.Option(help="The page.")] = HERE / "advise.md",
) -> None:
    """Measure what is not measured yet and write the page."""
    cases: Cases = {}
    for model in encoder:
        for name in SEVEN:
            key = Path(model).name, name
            cases[key] = kept(work / f"{key[0]}-{name}.json", lambda m=model, n=name: measure(m, load_task(n)))
    few = kept(work / "few.json", lambda: few_sentences(encoder[0]))
    labelled = {}
    for model in encoder:
        file = work / f"{Path(model).name}-labelled.json"
        labelled[Path(model).name] = kept(file, lambda m=model: with_labels(m))
    written = output.read_text(encoding="utf-8") if output.is_file() else ""
    log = MARK + written.partition(MARK)[2] if MARK in written else ""
    output.write_text(page(cases, few, labelled, log), encoding="utf-8")


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the file holds, or make it."""
    if not path.is_file():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


class Encodings:
    """All poolings of an encoder, in one pass through the transformer, kept on disk as `advise` keeps them."""

    def __init__(self, model: str) -> None:
        poolings = choose_poolings(model, None)
        self.encoder: Any = load_encoder(model, poolings[0], None)
        self.views = [*((pooling, False) for pooling in poolings), WORDS_IN_CONTEXT]
        self.all = cached(self.encoder, self.views)
        self.tokens = StaticEncoder.distill(self.encoder)

    def embed(self, view: tuple[str, bool], texts: list[str]) -> np.ndarray:
        """Vectors of one view."""
        return np.split(self.all(texts), len(self.views), axis=1)[self.views.index(view)]

    def score(self, task: PairTask, view: tuple[str, bool], name: str) -> float:
        """The score of a calibrator, fitted on the task's sentences."""
        fitted = make_calibrator(name, 0).fit(self.embed(view, task.fit_sentences))
        return scored(task, lambda texts: fitted.transform(self.embed(view, texts)))

    def score_best(self, task: PairTask, sentences: list[str]) -> float:
        """The score of the preset best, fitted on sentences."""
        joined = JoinedEncoder(self.tokens.weighted_by(sentences), self.encoder)

        def embed(texts: list[str]) -> np.ndarray:
            return np.hstack([joined.static.encode(texts), self.embed(WORDS_IN_CONTEXT, texts)])

        fitted = calibrator_for(joined, random_state=0).fit(embed(sentences))
        return scored(task, lambda texts: fitted.transform(embed(texts)))


def scored(task: PairTask, embed: Callable[[list[str]], np.ndarray]) -> float:
    """Spearman ×100; of several sub-sets their weighted mean."""
    return evaluate_task(task, embed, "all" if len(task.subsets) == 1 else "wmean", resamples=0).value


@cache
def encodings(model: str) -> Encodings:
    """Of one encoder, made once."""
    return Encodings(model)


def measure(model: str, task: PairTask) -> dict[str, Any]:
    """The advice without labels, and every candidate's true score."""
    found = encodings(model)
    views = [view for view in found.views if view != WORDS_IN_CONTEXT]
    truth = {f"{view[0]} + {name}": found.score(task, view, name) for view in views for name in CALIBRATORS}
    truth[f"preset {BEST}"] = found.score_best(task, task.fit_sentences)
    shuffled = np.random.default_rng(0).permutation(task.fit_sentences).tolist()  # so that no order tells of the pairs
    return {"truth": truth, "advice": advise(shuffled, model).to_dict()}


def few_sentences(model: str) -> dict[str, Any]:
    """STS-B dev by how many sentences a calibrator is fitted on; means of three draws."""
    task = load_task("STS-B", split="dev")
    encoder, found = as_encoder(model, "first-last-avg"), {}
    for rows in ROWS:
        draws = [np.random.default_rng(seed).permutation(task.fit_sentences)[:rows].tolist() for seed in range(3)]
        tables = [compare_recipes(encoder, [task], CALIBRATORS, fit_on=draw, resamples=0) for draw in draws]
        picks = [advise(draw, model, poolings=["first-last-avg"]).choice.calibrator for draw in draws]
        without = [advise(draw, encoder).choice.calibrator for draw in draws]  # an object has no presets
        values = {name: [table.results[name][task.name].value for table in tables] for name in CALIBRATORS}
        values[BEST] = [encodings(model).score_best(task, draw) for draw in draws]
        for name, chosen in {"the advice": picks, f"the advice without {BEST}": without}.items():
            values[name] = [values[pick][i] for i, pick in enumerate(chosen)]
        found[str(rows)] = {name: float(np.mean(each)) for name, each in values.items()} | {"picks": ", ".join(picks)}
    return found


def with_labels(model: str) -> dict[str, Any]:
    """What nested cross-validation says: with STS-B dev's labels, and with those of the shipped pairs."""
    dev = load_task("STS-B", split="dev")
    graded = sample_pairs()
    firsts, seconds = [pair.sentence1 for pair in graded], [pair.sentence2 for pair in graded]
    pairs = PairSet(firsts, seconds, np.array([pair.score for pair in graded]))
    shipped = PairTask("shipped", "spearman", {"all": pairs}, [])
    return {
        "STS-B dev": advise(dev.fit_sentences, model, dev).to_dict(),
        "the shipped pairs": advise(sample_sentences(), model, shipped).to_dict(),
    }


def named(candidate: dict[str, str]) -> str:
    """A candidate as the truth's keys name it."""
    preset = candidate["calibrator"] in TOKEN_PRESETS
    return f"preset {candidate['calibrator']}" if preset else f"{candidate['pooling']} + {candidate['calibrator']}"


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """How one piece of advice turned out."""
    truth, advice = case["truth"], case["advice"]
    pick, base, best = named(advice["choice"]), named(advice["baseline"]), max(truth, key=truth.get)
    return {
        "pick": "leave it" if advice["leave_it"] else pick,
        "gain": truth[pick] - truth[base],
        "expected": advice["gain"]["value"],
        "inside": advice["gain"]["low"] <= truth[pick] - truth[base] <= advice["gain"]["high"],
        "best": best,
        "regret": truth[best] - truth[pick],
        "uniformity": advice["geometry"]["uniformity"],
        "cosine": advice["geometry"]["mean_cosine"],
    }


def page(cases: Cases, few: dict[str, Any], labelled: dict[str, Any], log: str) -> str:
    """The whole page; the log at its end is written by hand."""
    encoders = list(labelled)
    rows = {key: judged(case) for key, case in cases.items()}
    near = [row["regret"] <= 1 for row in rows.values()]
    unseen = [row["regret"] <= 1 for (model, name), row in rows.items() if not developed(model, name)]
    changed = [row for row in rows.values() if row["pick"] != "leave it"]
    errors = [row["expected"] - row["gain"] for row in changed]
    picks = sorted({row["pick"] for row in changed})
    text = f"""# Is the advice good?

Made by `python results/advise.py {" ".join(f"--encoder {name}" for name in encoders)}`. `bertflow advise` saw each set's
sentences, shuffled, and no labels; seed 0. Spearman ×100 (STS12–16: wmean). Candidates:
{len(POOLINGS)} poolings × {len(CALIBRATORS)} calibrators (raw included) and the preset `best`, fitted on target. *Regret*: how
far the pick is from the best of all {len(POOLINGS) * len(CALIBRATORS) + 1}.

- Within 1 point of the best candidate: **{sum(near)} of {len(near)}** ({100 * np.mean(near):.0f} %); among the
  cases that had no part in development: {sum(unseen)} of {len(unseen)}.
- Mean regret {np.mean([row["regret"] for row in rows.values()]):.2f}, worst {max(row["regret"] for row in rows.values()):.2f}.
- Expected gain, where a change was advised: off by {np.mean(np.abs(errors)):.1f} on average (mean error
  {np.mean(errors):+.1f}); the 95 % interval held the true gain in {sum(row["inside"] for row in changed)} of {len(changed)}.
- **What this does not show**: that splices tell crowded spaces apart. In the {len(changed)} cases where a change was advised it
  was always one of these: {"; ".join(picks)}. The line of evenness and a fixed habit would do as well here.

| encoder | set | uniformity | mean cosine | advice | expected gain | true gain | best candidate | regret |
|---|---|---:|---:|---|---:|---:|---|---:|
"""
    for (model, name), row in rows.items():
        mark = "" if developed(model, name) else " °"
        text += (
            f"| {model} | {name}{mark} | {row['uniformity']:.2f} | {row['cosine']:.2f} | {row['pick']} "
            f"| {row['expected']:+.1f} | {row['gain']:+.2f} | {row['best']} | {row['regret']:.2f} |\n"
        )
    return (
        text
        + "\n° had no part in development, but for STS-B: its dev pairs had, and its sentences are the same.\n"
        + averages(cases)
        + left_out(cases, rows)
        + without_line(cases)
        + vectors_alone(cases)
        + always(cases)
        + table_labelled(cases, labelled)
        + table_few(few, encoders[0])
        + log
    )


def averages(cases: Cases) -> str:
    """What calibration does to each encoder, over the seven sets."""
    names = [*(f"mean + {name}" for name in ("none", "natsv-1", "whitening", "flow")), f"preset {BEST}"]
    text = "\n## Averages of the seven sets\n\n"
    text += f"| encoder | {' | '.join(names)} | the advice |\n|---{'|---:' * (len(names) + 1)}|\n"
    for model in dict.fromkeys(model for model, _ in cases):
        mine = [case for (owner, _), case in cases.items() if owner == model]
        found = [np.mean([case["truth"][name] for case in mine]) for name in names]
        found.append(np.mean([case["truth"][named(case["advice"]["choice"])] for case in mine]))
        text += f"| {model} | {' | '.join(f'{value:.2f}' for value in found)} |\n"
    return text


def developed(model: str, name: str) -> bool:
    """Whether a case was looked at while the rule was made."""
    return model in DEVELOPED_WITH and name in DEVELOPED_ON


def left_out(cases: Cases, rows: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The constants made anew without an encoder, and what that changes for it."""
    text = (
        "\n## Leaving one encoder out\n\nThe slope and the line of evenness made anew, by the same recipe, from STS12 and "
        "STS13 of the other development encoder (of both for an encoder that was not developed with). "
        f"Shipped: slope {SLOPE:g}, line {EVEN:g}.\n\n"
        "| encoder left out | slope | line | advised to leave | within 1 point | mean error of the expected gain |\n"
        "|---|---:|---:|---:|---:|---:|\n"
    )
    for model in dict.fromkeys(model for model, _ in cases):
        others = [key for key in cases if developed(*key) and key[0] != model]
        if not others:
            continue
        x, y = map(np.array, zip(*(point for key in others for point in points(cases[key])), strict=True))
        slope = float(x @ y / (x @ x))
        line = (max_even := min(rows[key]["uniformity"] for key in others)) + (-4 - max_even) / 2
        mine = {key: row for key, row in rows.items() if key[0] == model}
        leave = {key: row["uniformity"] <= line for key, row in mine.items()}
        regrets = [regret(cases[key], leave[key]) for key in mine]
        errors = [slope / SLOPE * mine[key]["expected"] - mine[key]["gain"] for key in mine if not leave[key]]
        error = f"{np.mean(np.abs(errors)):.1f}" if errors else "–"
        text += (
            f"| {model} | {slope:.1f} | {line:.2f} | {sum(leave.values())} of {len(mine)} "
            f"| {sum(r <= 1 for r in regrets)} of {len(mine)} | {error} |\n"
        )
    return text


def without_line(cases: Cases) -> str:
    """What the splices alone would have done to the encoders that were left as they are."""
    left = [case for case in cases.values() if case["advice"]["leave_it"]]
    if not left:
        return ""
    tops = [named(case["advice"]["options"][0]["candidate"]) for case in left]
    found = [points(case, top)[0] for case, top in zip(left, tops, strict=True)]
    near = sum(regret(case, False) <= 1 for case in left)
    promised, came = np.mean([SLOPE * x for x, _ in found]), np.mean([y for _, y in found])
    return (
        f"\nWithout the line, by splices alone, {near} of the {len(left)} cases that were left would be within 1 point: "
        f"{promised:+.1f} on average would be promised, and {came:+.1f} come of it.\n"
    )


def vectors_alone(cases: Cases) -> str:
    """What the geometry alone advises at the pooling that is compared with: the flow above the line, else nothing."""
    found = []
    for case in cases.values():
        advice, pooling = case["advice"], case["advice"]["baseline"]["pooling"]
        pick = "none" if advice["geometry"]["uniformity"] <= EVEN else "flow"
        own = {name: value for name, value in case["truth"].items() if name.startswith(f"{pooling} + ")}
        found.append(max(own.values()) - own[f"{pooling} + {pick}"])
    return (
        f"\nOf vectors alone (the flow above the line, nothing below it; mean pooling), {sum(r <= 1 for r in found)} of "
        f"{len(found)} are within 1 point of the best calibrator of that pooling; mean regret {np.mean(found):.2f}, worst "
        f"{max(found):.2f}.\n"
    )


def points(case: dict[str, Any], only: str | None = None) -> list[tuple[float, float]]:
    """For each candidate the share of the baseline's splice error that it removes, and its true gain."""
    base = named(case["advice"]["baseline"])
    scores = {named(option["candidate"]): option["score"] for option in case["advice"]["options"]}
    return [
        (1 - (100 - scores[name]) / (100 - scores[base]), case["truth"][name] - case["truth"][base])
        for name in scores
        if (name != base if only is None else name == only)
    ]


def regret(case: dict[str, Any], leave: bool) -> float:
    """Of leaving it, or of the best splice score."""
    top = named(case["advice"]["baseline"] if leave else case["advice"]["options"][0]["candidate"])
    return max(case["truth"].values()) - case["truth"][top]


def always(cases: Cases) -> str:
    """What fixed habits would have done."""
    text = "\n## Against fixed habits\n\n| always | within 1 point | mean regret | worst |\n|---|---:|---:|---:|\n"
    picks = {"the advice": lambda case: named(case["advice"]["choice"])}
    picks |= {name: lambda case, name=name: name for name in next(iter(cases.values()))["truth"]}
    for name, pick in picks.items():
        found = [max(case["truth"].values()) - case["truth"][pick(case)] for case in cases.values()]
        if name == "the advice" or name.endswith(("none", "whitening", "flow", BEST)):
            text += (
                f"| {name} | {sum(r <= 1 for r in found)} of {len(found)} | {np.mean(found):.2f} | {max(found):.2f} |\n"
            )
    return text


def table_labelled(cases: Cases, labelled: dict[str, Any]) -> str:
    """Nested cross-validation, and how STS-B dev's choice does on STS-B test."""
    text = "\n## With labels\n\nNested cross-validation; *regret* is that of the choice on STS-B test, "
    text += "whose labels it has not seen.\n\n"
    text += "| encoder | labels | advice | gain, 95 % interval | regret |\n|---|---|---|---:|---:|\n"
    for model, found in labelled.items():
        for name, advice in found.items():
            gain, pick = advice["gain"], "leave it" if advice["leave_it"] else named(advice["choice"])
            told = "–" if advice["leave_it"] else f"{gain['value']:+.1f} ({gain['low']:+.1f} to {gain['high']:+.1f})"
            truth = cases[model, "STS-B"]["truth"]
            lost = f"{max(truth.values()) - truth[named(advice['choice'])]:.2f}" if name == "STS-B dev" else "–"
            text += f"| {model} | {name} | {pick} | {told} | {lost} |\n"
    return text


def table_few(few: dict[str, Any], encoder: str) -> str:
    """Scores by the number of sentences."""
    names = [name for name in next(iter(few.values())) if name != "picks"]
    text = f"\n## Too little text\n\n{encoder}, first-last-avg, STS-B dev; fitted on so many sentences of STS-B, "
    text += "means of three draws.\n\n"
    text += f"| sentences | {' | '.join(names)} | advised |\n|---:{'|---:' * len(names)}|---|\n"
    for rows, values in few.items():
        text += f"| {int(rows):,} | {' | '.join(f'{values[name]:.2f}' for name in names)} | {values['picks']} |\n"
    return text


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
