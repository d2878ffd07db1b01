"""Must a flow be fitted for every task? Target against general text, by size; transfer between sets; adapting mini-flow.

    python results/refit.py TEXT_FOLDER

TEXT_FOLDER is that of results/fit_mini_flow.py. Writes results/refit.md and docs/refit.png; docs/refit.md explains them. With
--dev it prints instead, for STS-B dev, STS12 and STS13, on which choices were made, and draws refit-dev.png.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer
from fit_mini_flow import LONGEST, general_sentences
from shared_data import use_shared_data

from bertflow import BertFlow, Calibrator, Encoder, FlowCalibrator, Whitening
from bertflow.arrays import Matrix
from bertflow.data import MINI, MINI_FLOW
from bertflow.evaluation import load_task, score_pairs, task_similarities
from bertflow.paper.figures import drawing
from bertflow.paper.published import SEVEN
from bertflow.paper.sts import nli_sentences
from bertflow.storage.remembering import cached

SIZES = (500, 2_000, 10_000, 50_000)
SHORT_SIZES = (*SIZES, 100_000, 200_000)
ANY_SIZES = (*SIZES, 200_000, 500_000)
ADAPTED = (100, 500, 2_000)  # of a set's own sentences, or all where it has fewer: STS16 has 1 867
ANY = 400  # characters: of the sentences of any length; longer ones are rarely sentences
HERE = Path(__file__).parent
Scores: TypeAlias = dict[str, float]  # by set
Curves: TypeAlias = dict[str, dict[int | str, Scores]]  # by what was fitted on and by how many sentences of it
COLOURS = ("#d55e00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")  # of Okabe and Ito


class Study:
    """One encoder, its sets encoded once, and a score for any calibrator."""

    def __init__(self, sets: Iterable[tuple[str, str]], seeds: int) -> None:
        self.embed = cached(Encoder(MINI), show_progress_bar=True)
        self.tasks = {name: load_task(name, split=split) for name, split in sets}
        self.own = {name: self.embed(task.fit_sentences) for name, task in self.tasks.items()}
        self.scored = {name: self.embed(task.sentences) for name, task in self.tasks.items()}
        self.seeds = range(seeds)

    def score(self, calibrator: Calibrator | None, name: str) -> float:
        """Spearman ×100 on a set, sub-sets joined by wmean; None: of the raw vectors."""
        task, raw = self.tasks[name], self.scored[name]
        vectors = raw if calibrator is None else calibrator.transform(raw)
        setting = "wmean" if len(task.subsets) > 1 else "all"
        return score_pairs(
            task_similarities(task, lambda _: vectors), task.gold, task.metric, setting, resamples=0
        ).value

    def scores(self, fit: Callable[[str, int], Calibrator | None]) -> Scores:
        """Mean over the seeds of the calibrator that ``fit`` gives for each set."""
        return {name: float(np.mean([self.score(fit(name, s), name) for s in self.seeds])) for name in self.tasks}

    def on_general(self, vectors: Matrix) -> Scores:
        """Scores of the flow that was fitted once on ``vectors`` (n, d)."""
        flows = [FlowCalibrator(random_state=seed).fit(vectors) for seed in self.seeds]
        return self.scores(lambda _, seed: flows[seed])

    def on_own(self, rows: int | None) -> Scores:
        """Scores of the flow fitted on so many of each set's own sentences; None: all."""
        return self.scores(lambda name, seed: FlowCalibrator(random_state=seed).fit(self.some(name, rows, seed)))

    def some(self, name: str, rows: int | None, seed: int) -> Matrix:
        """Return so many of a set's own vectors (n, d), at random."""
        return self.own[name][np.random.default_rng(seed).permutation(len(self.own[name]))[:rows]]


def curves(study: Study, folder: Path) -> Curves:
    """By corpus, then by number of sentences."""
    nli = study.embed(list(dict.fromkeys(nli_sentences(None) or [])))
    corpora = {
        "NLI": (nli, (*SIZES, len(nli))),
        f"general, ≤ {LONGEST} characters": (study.embed(general_sentences(folder, SHORT_SIZES[-1])), SHORT_SIZES),
        "general, any length": (study.embed(general_sentences(folder, ANY_SIZES[-1], ANY)), ANY_SIZES),
    }
    found: Curves = {"target": {size or "all": study.on_own(size) for size in (*ADAPTED, None)}}
    for name, (vectors, sizes) in corpora.items():
        found[name] = {size: study.on_general(vectors[:size]) for size in sizes}
    return found


def transfer(study: Study) -> dict[str, Scores]:
    """By the set that was fitted on, then by the set that was scored."""
    return {name: study.on_general(vectors) for name, vectors in study.own.items()}


def adaptation(study: Study) -> dict[int | str, dict[str, Scores]]:
    """By number of own sentences, then by method."""
    ready = BertFlow.from_pretrained(MINI_FLOW, device="cpu").calibrator

    def adapted(x: Matrix, seed: int) -> Calibrator:
        return deepcopy(ready).set_params(random_state=seed).partial_fit(x)

    methods: dict[str, Callable[[Matrix, int], Calibrator]] = {
        "mini-flow adapted": adapted,
        "flow from scratch": lambda x, seed: FlowCalibrator(random_state=seed).fit(x),
        "Whitening(shrinkage=0.1)": lambda x, seed: Whitening(shrinkage=0.1).fit(x),
    }
    found: dict[int | str, dict[str, Scores]] = {0: {"mini-flow as it ships": study.scores(lambda *_: ready)}}
    for rows in (*ADAPTED, None):
        found[rows or "all"] = {
            name: study.scores(lambda task, seed, make=make, rows=rows: make(study.some(task, rows, seed), seed))
            for name, make in methods.items()
        }
    return found


def table(title: str, rows: dict[tuple[str, ...], Scores], head: tuple[str, ...]) -> str:
    """Scores as Markdown, with their average."""
    sets = list(next(iter(rows.values())))
    text = (
        f"## {title}\n\n| {' | '.join((*head, *sets, 'average'))} |\n|{'---|' * len(head)}{'---:|' * (len(sets) + 1)}\n"
    )
    for names, scores in rows.items():
        cells = [f"{value:.1f}" for value in (*scores.values(), np.mean(list(scores.values())))]
        text += f"| {' | '.join((*names, *cells))} |\n"
    return text + "\n"


def draw(path: Path, raw: Scores, by_size: Curves, moved: dict[str, Scores]) -> None:
    """The curves and the matrix, side by side."""
    with drawing(path, (11, 5)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        for colour, marker, (name, points) in zip(COLOURS, "os^Dv", by_size.items(), strict=True):
            known = {size: _mean(scores) for size, scores in points.items() if isinstance(size, int)}
            left.plot(list(known), list(known.values()), color=colour, marker=marker, label=name)
        left.axhline(_mean(by_size["target"]["all"]), color=COLOURS[0], linestyle="--", label="target, all of it")
        left.axhline(_mean(raw), color="#7f7f7f", linestyle=":", label="raw vectors")
        left.set(xscale="log", xlabel="sentences fitted on", ylabel="Spearman ×100, average of the sets")
        left.set_title("What the flow of mini is fitted on")
        left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, fontsize=8, frameon=False)
        matrix = np.array([[scores[name] - raw[name] for name in moved] for scores in moved.values()])
        most = float(np.abs(matrix).max())
        right.imshow(matrix, cmap="PuOr", vmin=-most, vmax=most)
        for (i, j), value in np.ndenumerate(matrix):
            colour = "white" if abs(value) > 0.6 * most else "black"
            right.text(j, i, f"{value:+.1f}", ha="center", va="center", fontsize=8, color=colour)
        right.set_xticks(range(len(moved)), list(moved), rotation=45)
        right.set_yticks(range(len(moved)), list(moved))
        right.set(title="Points over the raw vectors", xlabel="scored on", ylabel="fitted on")


def _mean(scores: Scores) -> float:
    return float(np.mean(list(scores.values())))


def _sized(size: int | str) -> str:
    return size if isinstance(size, str) else f"{size:,}".replace(",", " ")


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of part-*.txt.xz, one paragraph a line.")],
    seeds: Annotated[int, typer.Option(help="Seeds of the flow and of the choice of rows.")] = 3,
    dev: Annotated[bool, typer.Option("--dev", help="Print, for the three sets that choices are made on.")] = False,
) -> None:
    """Run the study and write its tables and figure."""
    three = (("STS-B", "dev"), ("STS12", "test"), ("STS13", "test"))
    study = Study(three if dev else [(name, "test") for name in SEVEN], seeds)
    raw = study.scores(lambda *_: None)
    by_size, moved, adapted = curves(study, folder), transfer(study), adaptation(study)
    text = table(
        "Fitted on target, general text or NLI",
        {("raw vectors", ""): raw}
        | {(name, _sized(size)): row for name, rows in by_size.items() for size, row in rows.items()},
        ("fitted on", "sentences"),
    )
    text += table(
        "Fitted on one set, scored on another",
        {(name, _sized(len(study.own[name]))): row for name, row in moved.items()},
        ("fitted on", "sentences"),
    )
    text += table(
        "mini-flow, adapted by partial_fit to some of the target's sentences",
        {(_sized(size), method): row for size, rows in adapted.items() for method, row in rows.items()},
        ("own sentences", "method"),
    )
    some = {size: rows["mini-flow adapted"] for size, rows in adapted.items() if size in ADAPTED}
    drawn = by_size | {"mini-flow, adapted to target": some}
    if dev:
        typer.echo(text)
        draw(Path("refit-dev.png"), raw, drawn, moved)
        return
    head = f"Made by `python results/refit.py TEXT_FOLDER`: mini, first-last-avg, preset default, mean of seeds 0–{seeds - 1}."
    (HERE / "refit.md").write_text(
        f"# Must a flow be fitted for every task?\n\n{head} Spearman ×100, STS12–16 as wmean; see docs/refit.md.\n\n{text}",
        encoding="utf-8",
    )
    draw(HERE.parent / "docs" / "refit.png", raw, drawn, moved)


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
