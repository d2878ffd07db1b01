"""Runs of MTEB: without noise, without stale results, and for several recipes on one encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertflow.encoders.base import TextEncoder
from bertflow.errors import require
from bertflow.evaluation.comparison import TARGET
from bertflow.integrations.mteb import MTEBEncoder
from bertflow.integrations.mteb_tasks import quiet_mteb, task_sentences
from bertflow.model import BertFlow
from bertflow.recipes import RAW, check_recipe, readings
from bertflow.storage.remembering import Remembering


@dataclass(frozen=True)
class MTEBScore:
    """One model on one task.

    Args:
        model: The model's name in MTEB.
        revision: The hash of its vectors.
        task: MTEB's name of the task.
        metric: The task's main score, such as ``"cosine_spearman"``.
        score: Its value, from 0 to 1 as MTEB counts.
        data: The data's revision: of the hub, or ``local-`` and a hash.
    """

    model: str
    revision: str
    task: str
    metric: str
    score: float
    data: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


def evaluate(
    model: Any,
    tasks: Sequence[Any],
    *,
    cache: str | Path | None = None,
    overwrite: bool = False,
    show_progress_bar: bool = False,
) -> list[MTEBScore]:
    """Run ``mteb.evaluate``, quietly, and keep its results where MTEB's users look for them.

    A result that MTEB's cache has of other data (local against hub, an edited file) is not taken, which MTEB itself does.

    Args:
        model: A ``BertFlow``, an encoder, or an ``MTEBEncoder``.
        tasks: From ``load_tasks``, ``local_task``, ``pairs_task`` or ``mteb.get_tasks``.
        cache: Folder for MTEB's ``ResultCache``; default: MTEB's own, ``$MTEB_CACHE`` or ``~/.cache/mteb``.
        overwrite: Run again what has a result already.
        show_progress_bar: Show progress.
    """
    mteb = require("mteb", "mteb")
    encoder = model if isinstance(model, MTEBEncoder) else MTEBEncoder(model)
    results = mteb.ResultCache(cache)
    scores = []
    with quiet_mteb():
        for task in tasks:
            known = None if overwrite else results.load_task_result(task.metadata.name, encoder.mteb_model_meta)
            fresh = known is not None and known.dataset_revision == task.metadata.revision
            (result,) = mteb.evaluate(
                encoder,
                task,
                cache=results,
                overwrite_strategy="only-missing" if fresh else "always",
                encode_kwargs={"batch_size": 1024, "show_progress_bar": show_progress_bar},
                show_progress_bar=False,
            ).task_results
            scores.append(_score(encoder, task, result))
    return scores


def evaluate_recipes(
    encoder: TextEncoder,
    tasks: Sequence[Any],
    recipes: Sequence[str] = (RAW,),
    *,
    fit_on: str | Sequence[str] = TARGET,
    seed: int = 0,
    cache: str | Path | None = None,
    overwrite: bool = False,
    show_progress_bar: bool = False,
) -> dict[str, list[MTEBScore]]:
    """Fit recipes on one encoder, without labels, and run each on tasks of MTEB.

    Args:
        encoder: The frozen encoder.
        tasks: From ``load_tasks``, ``local_task`` or ``pairs_task``.
        recipes: Names of ``bertflow.recipes()``.
        fit_on: ``"target"`` (each task's own sentences, STS tasks only) or sentences to fit on once for all tasks.
        seed: For what is random.
        cache: As in ``evaluate``.
        overwrite: As in ``evaluate``.
        show_progress_bar: Show progress.

    Returns:
        The scores by recipe, in the order of the tasks.
    """
    checked = {name: check_recipe(name) for name in recipes}
    if all(task.metadata.type == "STS" for task in tasks):  # small: worth remembering; a corpus to be searched is not
        encoder = Remembering(encoder, readings(list(checked.values()), encoder), show_progress_bar=show_progress_bar)
    options: dict[str, Any] = {"cache": cache, "overwrite": overwrite, "show_progress_bar": show_progress_bar}
    scores: dict[str, list[MTEBScore]] = {name: [] for name in checked}
    to_fit = {name: recipe for name, recipe in checked.items() if recipe != RAW}
    for name in checked.keys() - to_fit.keys():
        scores[name] = evaluate(encoder, tasks, **options)
    groups = [[task] for task in tasks] if fit_on == TARGET else [list(tasks)]
    for group in groups if to_fit else []:
        sentences = task_sentences(group[0]) if fit_on == TARGET else list(dict.fromkeys(fit_on))
        seen = [group[0].metadata.name] if fit_on == TARGET else []
        for name, recipe in to_fit.items():
            model = BertFlow.fit(sentences, encoder, recipe=recipe, random_state=seed)
            scores[name] += evaluate(MTEBEncoder(model, training_datasets=seen), group, **options)
    return scores


def _score(encoder: MTEBEncoder, task: Any, result: Any) -> MTEBScore:
    meta = encoder.mteb_model_meta
    metric = task.metadata.main_score
    return MTEBScore(
        meta.name, meta.revision, task.metadata.name, metric, float(result.get_score()), result.dataset_revision
    )
