"""How good is this encoder, and does calibration help? Recipes side by side on one encoder, one encoding for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.encoders.base import TextEncoder
from bertflow.encoders.token_table import has_fast_tokenizer
from bertflow.errors import InputError
from bertflow.evaluation.formats import Figure, Figures
from bertflow.evaluation.scores import Score, Setting, difference
from bertflow.evaluation.tasks import Encode, Task
from bertflow.model import BertFlow
from bertflow.recipes import RAW, check_recipe, is_random, readings
from bertflow.storage.remembering import Remembering

OF_VIEWS = (RAW, "whitening", "flow")
OF_TOKENS = ("static", "best")
TARGET = "target"
AVERAGE = "average"


@dataclass(frozen=True)
class Result:
    """One recipe on one task.

    Args:
        values: The score ×100 with each seed.
        score: The first seed's score, with its bootstrap interval and sub-sets.
        p_value: Of the difference to the raw vectors, by paired bootstrap on the first seed; None for the raw ones.
        seeds: The seeds.
    """

    values: tuple[float, ...]
    score: Score
    p_value: float | None
    seeds: tuple[int, ...]

    @property
    def value(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds; None with one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def __str__(self) -> str:
        return str(self.figure())

    def figure(self, best: bool = False) -> Figure:
        """Return it as a figure of a table."""
        score = self.score
        return Figure(self.value, self.deviation, score.low, score.high, self.p_value, best, score.metric)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        shown = {"values": self.values, "score": self.score.to_dict(), "p_value": self.p_value, "seeds": self.seeds}
        return shown | {"value": self.value, "deviation": self.deviation}


@dataclass(frozen=True)
class ComparisonTable:
    """Recipes × tasks.

    Args:
        encoder: What ``describe()`` says of it.
        fit_on: What the recipes were fitted on.
        results: By recipe, then by task.
    """

    encoder: dict[str, Any]
    fit_on: str
    results: dict[str, dict[str, Result]]

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks."""
        return list(next(iter(self.results.values())))

    def average(self, recipe: str) -> float:
        """Mean over the tasks."""
        return float(np.mean([result.value for result in self.results[recipe].values()]))

    def best(self, task: str) -> str:
        """Name of the best recipe on a task; of ``"average"``: over all tasks."""
        if task == AVERAGE:
            return max(self.results, key=self.average)
        return max(self.results, key=lambda name: self.results[name][task].value)

    def figures(self) -> Figures:
        """Return the table, to be written in any format; with several tasks the last column is their average."""
        columns = [*self.tasks, *([AVERAGE] if len(self.tasks) > 1 else [])]
        best = {column: self.best(column) for column in columns} if len(self.results) > 1 else {}
        rows = {}
        for name, cells in self.results.items():
            averaged = Figure(self.average(name), best=best.get(AVERAGE) == name, metric="mean")
            rows[name] = [
                averaged if column == AVERAGE else cells[column].figure(best.get(column) == name) for column in columns
            ]
        return Figures("recipe", columns, rows, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        results = {name: {task: cell.to_dict() for task, cell in cells.items()} for name, cells in self.results.items()}
        average = {name: self.average(name) for name in self.results}
        return {"encoder": self.encoder, "fit_on": self.fit_on, "results": results, "average": average}

    def to_markdown(self) -> str:
        """Return the table as Markdown: mean ± sd over seeds, with the first seed's interval."""
        return self.figures().to_markdown()


def default_recipes(encoder: TextEncoder) -> tuple[str, ...]:
    """Return what is worth comparing on an encoder: those of a table of tokens only where it can have one."""
    return (*OF_VIEWS, *OF_TOKENS) if has_fast_tokenizer(encoder) else OF_VIEWS


def compare_recipes(
    encoder: TextEncoder,
    tasks: Sequence[Task],
    recipes: Sequence[str] | None = None,
    *,
    fit_on: str | Sequence[str] = TARGET,
    setting: Setting = "wmean",
    metric: str | None = None,
    seeds: Sequence[int] = (0,),
    resamples: int = 1000,
    show_progress_bar: bool = False,
) -> ComparisonTable:
    """Fit each recipe, without labels, and score it on each task.

    Args:
        encoder: The frozen encoder. Each text goes through it once, ever: its vectors are kept on disk.
        tasks: From ``load_task`` or ``load_own``; of any kind.
        recipes: Names of ``bertflow.recipes()``; default: ``default_recipes(encoder)``.
        fit_on: ``"target"`` (all texts of the task itself, the paper's setting) or sentences to fit on once.
        setting: ``"wmean"`` (the paper's), ``"mean"`` or ``"all"``, for the tasks that have sub-sets.
        metric: Instead of each task's own.
        seeds: A recipe with something random is fitted once for each.
        resamples: For confidence intervals and p-values; 0 gives none.
        show_progress_bar: Show progress.
    """
    names = tuple(dict.fromkeys(default_recipes(encoder) if recipes is None else recipes))
    if not tasks or not names or not seeds:
        raise InputError("At least one task, one recipe and one seed are needed.")
    if isinstance(fit_on, str) and fit_on != TARGET:
        raise InputError(f"fit_on is 'target' or a list of sentences; it was {fit_on!r}.")
    for name in names:
        check_recipe(name)
    judged = [task.judged_by(metric, setting) for task in tasks]
    if len({task.name for task in tasks}) < len(tasks):
        raise InputError(f"Tasks need different names; these are {', '.join(task.name for task in tasks)}.")
    general = None if isinstance(fit_on, str) else list(dict.fromkeys(fit_on))
    remembering = Remembering(encoder, readings([RAW, *names], encoder), show_progress_bar=show_progress_bar)
    models = _Models(remembering)
    results: dict[str, dict[str, Result]] = {name: {} for name in names}
    with tqdm(total=len(tasks) * len(names), desc="comparing", disable=not show_progress_bar) as bar:
        for task in judged:
            models.fit_on(task.fit_sentences if general is None else general)
            raw = task.score(models(RAW, seeds[0]), resamples=resamples)
            for name in names:
                results[name][task.name] = _result(task, name, models, seeds, raw, resamples)
                bar.update()
    what = TARGET if general is None else f"{len(general)} sentences"
    return ComparisonTable(encoder.describe(), what, results)


class _Models:
    """Recipes fitted on the same texts, each once a seed."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self._texts: Sequence[str] = ()
        self._fitted: dict[tuple[str, int], BertFlow] = {}

    def fit_on(self, texts: Sequence[str]) -> None:
        """Take other texts; what was fitted on the earlier ones is forgotten."""
        if texts is not self._texts:
            self._texts, self._fitted = texts, {}

    def __call__(self, name: str, seed: int) -> Encode:
        """Return what encodes by a recipe, fitted if need be."""
        if (name, seed) not in self._fitted:
            self._fitted[name, seed] = BertFlow.fit(self._texts, self._encoder, recipe=name, random_state=seed)
        return self._fitted[name, seed].encode


def _result(
    task: Task, name: str, models: Callable[[str, int], Encode], seeds: Sequence[int], raw: Score, resamples: int
) -> Result:
    """Score one recipe with every seed, and against the raw vectors with the first."""
    own, is_raw = tuple(seeds) if is_random(name) else tuple(seeds[:1]), check_recipe(name) == RAW
    first = raw if is_raw else task.score(models(name, own[0]), resamples=resamples)
    others = [task.score(models(name, seed), resamples=0).value for seed in own[1:]]
    p_value = difference(first, raw).p_value if resamples and not is_raw else None
    return Result((first.value, *others), first, p_value, own)
