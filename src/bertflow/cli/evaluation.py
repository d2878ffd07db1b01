"""The commands that judge: evaluate, compare, data get."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.judging import SEVEN, WITH_SPLITS, JudgingOptions, sentences_to_fit, write
from bertflow.cli.option_groups import grouped
from bertflow.cli.output import AsJson, Quiet, print_json, say, start, table
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.evaluation import Score, Task
    from bertflow.evaluation.comparison import ComparisonTable, Result
    from bertflow.evaluation.formats import Figures

NOTE = "[dim]score, 95 % interval below; bold: best; *: differs from the raw vectors, p < 0.05[/]"

data = typer.Typer(no_args_is_help=True, help="Get the data sets that the paper evaluates on.")


@grouped
def evaluate(
    *,
    recipe: Annotated[
        str,
        typer.Option("--recipe", "-r", "--calibrator", "-c", help="A recipe, such as `raw`, `whitening` or `best`."),
    ] = "raw",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A saved model instead of encoder and recipe.")
    ] = None,
    save_results: Annotated[
        bool, typer.Option("--save-results", help="Write the scores into the saved model and its model card.")
    ] = False,
    asked: JudgingOptions,
) -> None:
    """Score an encoder or a saved model on pairs, search or clusters, with 95 % intervals.

    bertflow evaluate --encoder mini --recipe flow --tasks STS-B

    bertflow evaluate --model my-model --pairs my-pairs.tsv --save-results
    """
    progress, form = start(asked.quiet, many_fits=True), asked.chosen_format()
    if save_results and (model is None or not Path(model).is_dir()):
        raise InputError(f"--save-results writes into a saved model: give its folder with --model; got {model}.")
    fitted_on = sentences_to_fit(asked.fit_on, [recipe])
    loaded = asked.load_tasks()
    if model is not None:
        scores = _scores_of(model, loaded, asked.device)
        if not write(_of_model(model, scores), form, asked.output):
            _show_model(model, scores)
        if save_results:
            _save_results(Path(model), scores, asked.split, asked.raw)
            if form is None:
                say(f"Written into [bold]{escape(model)}[/] and its model card.")
        return
    result = _compare(asked, loaded, [recipe], fitted_on, progress)
    if not write(result.figures(), form, asked.output):
        _show_one(result, loaded, recipe, asked.seeds)


@grouped
def compare(
    *,
    recipes: Annotated[
        str | None,
        typer.Option(
            "--recipes", "-r", "--calibrators", help="Comma-separated; default: raw, whitening, flow, static, best."
        ),
    ] = None,
    asked: JudgingOptions,
) -> None:
    """Compare recipes on one encoder: does calibration help on this data, and which recipe is best?

        bertflow compare --encoder mini --pairs my-pairs.tsv

        bertflow compare --queries queries.jsonl --corpus corpus.jsonl --qrels qrels.tsv

        bertflow compare --texts tickets.csv --labels topic --format latex --output table.tex

    The best of each column is bold; `*` marks a difference to the raw vectors that is significant (p < 0.05, paired bootstrap).
    """
    progress, form = start(asked.quiet, many_fits=True), asked.chosen_format()
    names = None if recipes is None else [name.strip() for name in recipes.split(",") if name.strip()]
    fitted_on = sentences_to_fit(asked.fit_on, names)
    tasks = asked.load_tasks()
    result = _compare(asked, tasks, names, fitted_on, progress)
    figures = result.figures()
    if write(figures, form, asked.output):
        return
    rows = [(name, *(_cell(result, name, column) for column in figures.columns)) for name in figures.rows]
    table(_title(result, asked.seeds), ("recipe", *figures.columns), rows)
    say(NOTE)
    _show_judgements(result, tasks)


def _show_judgements(result: ComparisonTable, tasks: list[Task]) -> None:
    """Say for each task which recipe to use, where raw vectors were among them."""
    from bertflow.evaluation.judgement import RECIPES, judge_scores, purpose_of

    for task in tasks:
        scores = {name: cells[task.name].score for name, cells in result.results.items()}
        if RECIPES[0] in scores and len(scores) > 1:
            found = judge_scores(scores, result.encoder["name"], purpose_of(task), len(task.fit_sentences))
            say(f"[bold]{escape(task.name)}[/]: {escape(found.headline)}")


def _compare(
    asked: JudgingOptions, tasks: list[Task], recipes: list[str] | None, fit_on: Any, progress: bool
) -> ComparisonTable:
    from bertflow.encoders.choosing import as_encoder
    from bertflow.evaluation.comparison import compare_recipes

    encoder = as_encoder(asked.encoder, asked.pooling, device=asked.device)
    options: dict[str, Any] = {"setting": asked.setting, "metric": asked.metric, "seeds": range(asked.seeds)}
    return compare_recipes(encoder, tasks, recipes, fit_on=fit_on, show_progress_bar=progress, **options)


def _scores_of(model: str, tasks: list[Task], device: str | None) -> dict[str, Score]:
    from bertflow.model import BertFlow

    loaded = BertFlow.from_pretrained(model, device=device)
    return {task.name: task.score(loaded.encode) for task in tasks}


def _of_model(model: str, scores: dict[str, Score]) -> Figures:
    from bertflow.evaluation.formats import Figure, Figures

    row = [Figure(s.value, None, s.low, s.high, metric=s.metric) for s in scores.values()]
    content = {"model": model, "results": {name: score.to_dict() for name, score in scores.items()}}
    return Figures("model", list(scores), {model: row}, content)


def _show_model(model: str, scores: dict[str, Score]) -> None:
    rows = [
        (name, s.setting, f"{s.size} {s.unit}", s.metric, f"{s.value:.2f}", f"{s.low:.1f} – {s.high:.1f}")
        for name, s in scores.items()
    ]
    table(escape(model), ("data set", "setting", "judged on", "metric", "score", "95 % interval"), rows)


def _show_one(result: ComparisonTable, tasks: list[Task], recipe: str, seeds: int) -> None:
    """Show one recipe on the terminal, sub-set by sub-set."""
    rows: list[tuple[str, ...]] = []
    for name, cell in result.results[recipe].items():
        s = cell.score
        rows.append((name, s.setting, f"{s.size} {s.unit}", s.metric, str(cell), _interval(cell)))
        parts = s.per_subset if len(s.per_subset) > 1 else s.also
        rows += [(f"  {escape(k)}", "", "", "", "–" if v is None else f"{v:.2f}", "") for k, v in parts.items()]
    table(_title(result, seeds, recipe), ("data set", "setting", "judged on", "metric", "score", "95 % interval"), rows)
    if len(tasks) > 1:
        say(f"Average: {result.average(recipe):.2f}")


def _save_results(folder: Path, scores: dict[str, Score], split: str, raw: bool) -> None:
    """Write scores into a saved model; no split is written for a user's own files."""
    from bertflow.evaluation import TASKS
    from bertflow.storage.cards import measured
    from bertflow.storage.model_folder import add_results

    results = []
    for name, score in scores.items():
        part = (split if name in WITH_SPLITS else "test") if name in TASKS else None
        results.append(measured(f"{name} (raw)" if raw and name in TASKS else name, score, part))
    add_results(folder, results)


def _cell(result: ComparisonTable, name: str, column: str) -> str:
    """Return a score for the terminal: bold if it is the best, starred if it is significant, its interval below."""
    cell = result.results[name].get(column)
    text = f"{result.average(name):.2f}" if cell is None else str(cell)
    text += "*" if cell is not None and cell.figure().significant else ""
    text = f"[bold]{text}[/]" if result.best(column) == name else text
    return text if cell is None else f"{text}\n[dim]{_interval(cell)}[/]"


def _interval(cell: Result) -> str:
    return "" if cell.score.low is None else f"{cell.score.low:.1f} – {cell.score.high:.1f}"


def _title(result: ComparisonTable, seeds: int, recipe: str | None = None) -> str:
    encoder = result.encoder
    parts = [escape(encoder["name"]), encoder.get("pooling", "")]
    if recipe in ("raw", "none"):
        parts.append("raw vectors")
    else:
        parts += [recipe or "", f"fitted on {result.fit_on}", f"seeds 0–{seeds - 1}" if seeds > 1 else "seed 0"]
    return " · ".join(part for part in parts if part)


@data.command("get")
def data_get(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: bertflow's cache folder.")] = None,
    tasks: Annotated[str, typer.Option(help="Data sets of the paper, comma-separated.")] = SEVEN + ",QNLI",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fetch the data sets of the paper from the Hugging Face hub.

        bertflow data get --tasks STS-B,SICK-R

    The copies on the hub have no sub-sets, so only `--setting all` can be used with them.
    """
    start(quiet)
    from bertflow.evaluation.download import download

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    if not names:
        raise InputError("--tasks names no data set; give at least one, such as STS-B.")
    folder = download(output, names)
    if as_json:
        print_json({"folder": str(folder), "tasks": names})
    else:
        say(
            f"{', '.join(names)} are in [bold]{escape(str(folder))}[/]. Next:  bertflow compare --encoder mini --setting all"
        )
