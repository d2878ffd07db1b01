"""The command that runs MTEB, the benchmark of the field."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.judging import Data, FitOn, sentences_to_fit
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, Seed, print_json, say, start, table
from bertflow.cli.recipes import completed
from bertflow.errors import InputError
from bertflow.recipes import RAW, check_recipe

if TYPE_CHECKING:
    from bertflow.integrations.mteb_runs import MTEBScore


def mteb(
    tasks: Annotated[
        str, typer.Option(help="MTEB's names, comma-separated; only those of the default may lie in --data.")
    ] = "STS12,STS13,STS14,STS15,STS16,STSBenchmark,SICK-R",
    model: Annotated[str | None, typer.Option("--model", "-m", help="A saved model: a folder or a hub id.")] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Or `mini` (the default), a Hugging Face id, or a folder.")
    ] = None,
    pooling: PoolingName = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            "-r",
            help="For --encoder: `raw` (default), `whitening`, `best`…; several with commas, or repeated.",
            autocompletion=completed,
        ),
    ] = None,
    calibrator: Annotated[
        list[str] | None, typer.Option("--calibrator", "-c", help="Deprecated: --recipe says it.", hidden=True)
    ] = None,
    fit_on: FitOn = "target",
    pairs: Annotated[
        Path | None, typer.Option(help="Your own graded pairs as a task instead: sentence1, sentence2, score.")
    ] = None,
    data: Data = None,
    hub: Annotated[
        bool, typer.Option("--hub", help="MTEB's copies from the hub, even where there are local ones.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for MTEB's result files; default: MTEB's own cache.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Run again what has a result.")] = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run MTEB on a model, or on an encoder with several recipes; data from your disk or from the hub.

    bertflow mteb --tasks STS12,STSBenchmark --encoder mini --recipe raw,whitening

    bertflow mteb --tasks Banking77Classification.v2 --model my-model
    """
    progress = start(quiet)
    names = _recipes(recipe, calibrator)
    if model is not None and (encoder or names or pooling):
        raise InputError("--model brings its own encoder and recipe: leave out --encoder, --pooling and --recipe.")
    names = names or [RAW]
    from bertflow.encoders.choosing import as_encoder
    from bertflow.errors import require
    from bertflow.integrations.mteb_runs import evaluate, evaluate_recipes
    from bertflow.model import BertFlow

    loaded = _tasks(tasks, pairs, data, hub)
    options: dict[str, Any] = {"cache": output, "overwrite": overwrite, "show_progress_bar": progress}
    if model is not None:
        scores = {model: evaluate(BertFlow.from_pretrained(model, device=device), loaded, **options)}
    else:
        scores = evaluate_recipes(
            as_encoder(encoder or "mini", pooling, device=device),
            loaded,
            names,
            fit_on=sentences_to_fit(fit_on, names),
            seed=seed,
            **options,
        )
    folder = require("mteb", "mteb").ResultCache(output).cache_path / "results"
    if as_json:
        results = {name: [score.to_dict() for score in row] for name, row in scores.items()}
        print_json({"output": str(folder), "fit_on": None if model else fit_on, "results": results})
    else:
        _show(scores, model or f"{encoder or 'mini'}, fitted on {fit_on}", folder)


def _recipes(recipe: list[str] | None, calibrator: list[str] | None) -> list[str]:
    """Return the recipes that the options name, checked; ``--calibrator`` is the deprecated one."""
    if recipe and calibrator:
        raise InputError("--recipe and --calibrator say the same thing; give --recipe alone.")
    names = [part.strip() for each in recipe or calibrator or () for part in each.split(",") if part.strip()]
    for name in names:
        check_recipe(name)
    if calibrator:
        warnings.warn(f"--calibrator is deprecated; write  --recipe {','.join(names)}", FutureWarning, stacklevel=2)
    return names


def _tasks(names: str, pairs: Path | None, data: Path | None, hub: bool) -> list[Any]:
    from bertflow.evaluation import load_pairs_file
    from bertflow.integrations.mteb_tasks import load_tasks, pairs_task

    if pairs is None:
        return load_tasks([name.strip() for name in names.split(",") if name.strip()], data, hub=hub)
    own = load_pairs_file(pairs)
    if own.metric != "spearman":
        raise InputError(
            f"{pairs} has labels, MTEB's STS wants graded scores: judge labels with  bertflow evaluate --pairs"
        )
    return [pairs_task(pairs.stem, own.subsets["all"])]


def _show(scores: dict[str, list[MTEBScore]], title: str, folder: Path) -> None:
    first = next(iter(scores.values()))
    rows = [
        (escape(name), *(f"{100 * s.score:.2f}" for s in row), f"{100 * sum(s.score for s in row) / len(row):.2f}")
        for name, row in scores.items()
    ]
    table(f"MTEB · {escape(title)} · main score ×100", ("model", *(s.task for s in first), "average"), rows)
    local = [s.task for s in first if s.data.startswith("local-")]
    say(f"[dim]{', '.join(sorted({s.metric for s in first}))}; local data: {', '.join(local) or 'none'}[/]")
    say(f"Results are in [bold]{escape(str(folder))}[/].")
