"""How good is this encoder, and does calibration help? Calibrators side by side on one encoder, one encoding for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.calibrators.names import is_random, make_calibrator
from bertflow.encoders.transformer import TextEncoder
from bertflow.errors import InputError
from bertflow.evaluation import Score, Task, compare, score_pairs, task_similarities
from bertflow.evaluation.pairs import Metric
from bertflow.evaluation.scores import Setting
from bertflow.storage.remembering import cached

DEFAULT_CALIBRATORS = ("none", "sn", "natsv-1", "natsv-10", "sn+natsv-6", "whitening", "flow")
TARGET = "target"


@dataclass(frozen=True)
class Result:
    """One calibrator on one task.

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
        return f"{self.value:.2f}" + ("" if self.deviation is None else f"±{self.deviation:.2f}")


@dataclass(frozen=True)
class ComparisonTable:
    """Calibrators × tasks.

    Args:
        encoder: What ``describe()`` says of it.
        fit_on: What the calibrators were fitted on.
        results: By calibrator, then by task.
    """

    encoder: dict[str, Any]
    fit_on: str
    results: dict[str, dict[str, Result]]

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks."""
        return list(next(iter(self.results.values())))

    def average(self, calibrator: str) -> float:
        """Mean over the tasks."""
        return float(np.mean([result.value for result in self.results[calibrator].values()]))

    def best(self, task: str) -> str:
        """Name of the best calibrator on a task."""
        return max(self.results, key=lambda name: self.results[name][task].value)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        table = asdict(self) | {"average": {name: self.average(name) for name in self.results}}
        for name, cells in self.results.items():
            for task, cell in cells.items():
                table["results"][name][task] |= {"value": cell.value, "deviation": cell.deviation}
        return table

    def to_markdown(self) -> str:
        """Return the table as Markdown: mean ± sd over seeds, with the first seed's interval."""
        text = f"| calibrator | {' | '.join(self.tasks)} |\n|---{'|---:' * len(self.tasks)}|\n"
        for name, cells in self.results.items():
            figures = [
                f"{'**' if self.best(task) == name else ''}{cell}{'**' if self.best(task) == name else ''}"
                + ("" if cell.score.low is None else f" ({cell.score.low:.1f}–{cell.score.high:.1f})")
                for task, cell in cells.items()
            ]
            text += f"| {name} | {' | '.join(figures)} |\n"
        return text


def compare_calibrators(
    encoder: TextEncoder,
    tasks: Sequence[Task],
    calibrators: Sequence[str] = DEFAULT_CALIBRATORS,
    *,
    fit_on: str | Sequence[str] = TARGET,
    setting: Setting = "wmean",
    metric: Metric | None = None,
    seeds: Sequence[int] = (0,),
    resamples: int = 1000,
    show_progress_bar: bool = False,
) -> ComparisonTable:
    """Fit each calibrator, without labels, and score it on each task.

    Args:
        encoder: The frozen encoder.
        tasks: From ``load_task`` or ``load_pairs_file``.
        calibrators: Short names; see ``bertflow.calibrators.names``.
        fit_on: ``"target"`` (all sentences of the task itself, the paper's setting) or sentences to fit on once.
        setting: ``"wmean"`` (the paper's), ``"mean"`` or ``"all"``, for the tasks that have sub-sets.
        metric: ``"spearman"``, ``"pearson"`` or ``"auc"``, instead of each task's own.
        seeds: The flow is fitted once for each.
        resamples: For confidence intervals and p-values; 0 gives none.
        show_progress_bar: Show progress.
    """
    if not tasks or not calibrators or not seeds:
        raise InputError("At least one task, one calibrator and one seed are needed.")
    embed = cached(encoder, show_progress_bar=show_progress_bar)
    general = None if isinstance(fit_on, str) else embed(list(dict.fromkeys(fit_on)))
    if isinstance(fit_on, str) and fit_on != TARGET:
        raise InputError(f"fit_on is 'target' or a list of sentences; it was {fit_on!r}.")
    fitted: dict[tuple[str, int], Calibrator] = {}
    results: dict[str, dict[str, Result]] = {name: {} for name in calibrators}
    with tqdm(total=len(tasks) * len(calibrators), desc="comparing", disable=not show_progress_bar) as bar:
        for task in tasks:
            if general is None:
                fitted = {}
            vectors = embed(task.fit_sentences) if general is None else general
            judge = _Judge(task, embed, setting, metric or task.metric, vectors, fitted, tuple(seeds), resamples)
            for name in calibrators:
                results[name][task.name] = judge(name)
                bar.update()
    what = TARGET if general is None else f"{len(general)} sentences"
    return ComparisonTable(encoder.describe(), what, results)


class _Judge:
    """Scores calibrators on one task, each against the raw vectors."""

    def __init__(
        self,
        task: Task,
        embed: Callable[[list[str]], Matrix],
        setting: Setting,
        metric: Metric,
        vectors: Matrix,
        fitted: dict[tuple[str, int], Calibrator],
        seeds: tuple[int, ...],
        resamples: int,
    ) -> None:
        self.task, self.embed, self.vectors, self.fitted = task, embed, vectors, fitted
        self.metric, self.resamples, self.seeds = metric, resamples, seeds
        self.setting: Setting = "all" if task.subsets_lost or len(task.subsets) == 1 else setting
        self.raw = task_similarities(task, embed)

    def __call__(self, name: str) -> Result:
        seeds = self.seeds if is_random(name) else self.seeds[:1]
        similarities = [self._similarities(name, seed) for seed in seeds]
        first = self._score(similarities[0], self.resamples)
        values = [first.value, *(self._score(each, 0).value for each in similarities[1:])]
        p_value = None
        if name != "none" and self.resamples:
            p_value = compare(
                similarities[0], self.raw, self.task.gold, self.metric, self.setting, resamples=self.resamples
            ).p_value
        return Result(tuple(values), first, p_value, seeds)

    def _similarities(self, name: str, seed: int) -> Any:
        if name == "none":
            return self.raw
        if (name, seed) not in self.fitted:
            self.fitted[name, seed] = make_calibrator(name, seed).fit(self.vectors)
        calibrator = self.fitted[name, seed]
        return task_similarities(self.task, lambda texts: calibrator.transform(self.embed(texts)))

    def _score(self, similarities: Any, resamples: int) -> Score:
        return score_pairs(similarities, self.task.gold, self.metric, self.setting, resamples=resamples)
