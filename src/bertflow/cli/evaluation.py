"""The commands that judge: evaluate, compare, data get."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Device, EncoderName, Markdown, PoolingName, Quiet, print_json, say, start, table
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.evaluation import Score, Task
    from bertflow.evaluation.comparison import ComparisonTable, Result

SEVEN = "STS-B,SICK-R,STS12,STS13,STS14,STS15,STS16"
WITH_SPLITS = ("STS-B", "SICK-R")

Tasks = Annotated[str, typer.Option(help="Data sets, comma-separated: STS-B, SICK-R, STS12 … STS16, QNLI.")]
Pairs = Annotated[
    Path | None,
    typer.Option(
        help="Your own pairs instead: .tsv, .csv, .jsonl or .parquet with sentence1, sentence2, score or 0/1 label."
    ),
]
Split = Annotated[str, typer.Option(help="`test`; for STS-B and SICK-R also `dev` and `train`.")]
Data = Annotated[Path | None, typer.Option(help="Folder of data sets; default: $BERTFLOW_DATA, then ../shared/data.")]
Raw = Annotated[bool, typer.Option("--raw", help="Raw, cased sentences instead of SentEval's tokenised ones.")]
FitOn = Annotated[
    str, typer.Option(help="`target` (the data set's own sentences, no labels), a file of sentences, or `nothing`.")
]
Setting = Annotated[
    str, typer.Option(help="How sub-sets of STS12–16 are joined: `wmean` (the paper), `mean` or `all`.")
]
MetricName = Annotated[
    str | None, typer.Option(help="`spearman`, `pearson` or `auc`; default: what the data set is judged by.")
]
Seeds = Annotated[int, typer.Option(help="How many seeds the flow is fitted with; mean ± sd is shown.")]

data = typer.Typer(no_args_is_help=True, help="Get the data sets that the paper evaluates on.")


def load_tasks(names: str, pairs: Path | None, folder: Path | None, raw: bool, split: str) -> list[Task]:
    """Load the tasks that the options name."""
    from bertflow.evaluation import load_pairs_file, load_task

    if pairs is not None:
        return [load_pairs_file(pairs)]
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    return [load_task(name, folder, raw, split if name in WITH_SPLITS else "test") for name in chosen]


def sentences_to_fit(fit_on: str, calibrators: Sequence[str]) -> Any:
    """What ``--fit-on`` names, as ``compare_calibrators`` takes it: the word "target", or a file's sentences."""
    from bertflow.evaluation.comparison import TARGET
    from bertflow.storage.text_files import read_sentences

    if fit_on == "nothing":
        if set(calibrators) != {"none"}:
            raise InputError(
                f"Fitted on nothing, there is only the calibrator none; asked for: {', '.join(calibrators)}."
            )
        return TARGET  # which none does not look at
    return TARGET if fit_on == TARGET else read_sentences(fit_on)


def evaluate(
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    calibrator: Annotated[
        str,
        typer.Option(
            "--calibrator",
            "-c",
            help="`none`, `sn`, `natsv-K`, `sn+natsv-K`, `whitening`, `whitening-K`, `flow`, `flow-paper`.",
        ),
    ] = "none",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A saved model instead of encoder and calibrator.")
    ] = None,
    save_results: Annotated[
        bool, typer.Option("--save-results", help="Write the scores into the saved model and its model card.")
    ] = False,
    fit_on: FitOn = "target",
    tasks: Tasks = SEVEN,
    pairs: Pairs = None,
    split: Split = "test",
    setting: Setting = "wmean",
    metric: MetricName = None,
    seeds: Seeds = 1,
    raw: Raw = False,
    data: Data = None,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tell how good an encoder is: Spearman ×100 (or AUC) with 95 % intervals, sub-set by sub-set.

    bertflow evaluate --encoder mini --calibrator flow --tasks STS-B

    bertflow evaluate --model my-model --pairs my-pairs.tsv --save-results
    """
    progress = start(quiet)
    if save_results and (model is None or not Path(model).is_dir()):
        raise InputError(f"--save-results writes into a saved model: give its folder with --model; got {model}.")
    loaded = load_tasks(tasks, pairs, data, raw, split)
    from bertflow.encoders.transformer import as_encoder
    from bertflow.evaluation.comparison import compare_calibrators

    if model is not None:
        scores = _evaluate_model(model, loaded, setting, metric, device)
        _show_model(model, scores, as_json)
        if save_results:
            own = pairs is not None  # a file of pairs has no splits that we know of
            _save_results(Path(model), scores, None if own else split, raw and not own)
            if not as_json:
                say(f"Written into [bold]{escape(model)}[/] and its model card.")
        return
    result = compare_calibrators(
        as_encoder(encoder, pooling, device=device),
        loaded,
        [calibrator],
        fit_on=sentences_to_fit(fit_on, [calibrator]),
        setting=setting,  # type: ignore[arg-type]
        metric=metric,  # type: ignore[arg-type]
        seeds=range(seeds),
        show_progress_bar=progress,
    )
    if as_json:
        print_json(result.to_dict())
        return
    rows: list[tuple[str, ...]] = []
    for task in loaded:
        cell = result.results[calibrator][task.name]
        rows.append((task.name, cell.score.setting, str(cell.score.pairs), str(cell), _interval(cell)))
        if len(cell.score.per_subset) > 1:
            rows += [
                (f"  {escape(k)}", "", "", "–" if v is None else f"{v:.2f}", "")
                for k, v in cell.score.per_subset.items()
            ]
    table(_title(result, seeds, calibrator), ("data set", "setting", "pairs", "score", "95 % interval"), rows)
    say(f"Average: {result.average(calibrator):.2f}")


def _evaluate_model(
    model: str, loaded: list[Task], setting: str, metric: str | None, device: str | None
) -> dict[str, Score]:
    from bertflow.evaluation import evaluate_task
    from bertflow.model import BertFlow

    bert_flow = BertFlow.from_pretrained(model, device=device)
    return {
        task.name: evaluate_task(
            task,
            bert_flow.encode,
            "all" if len(task.subsets) == 1 else setting,  # type: ignore[arg-type]
            metric=metric,  # type: ignore[arg-type]
        )
        for task in loaded
    }


def _show_model(model: str, scores: dict[str, Score], as_json: bool) -> None:
    if as_json:
        print_json({"model": model, "results": {name: score.to_dict() for name, score in scores.items()}})
        return
    rows = [
        (name, s.setting, str(s.pairs), f"{s.value:.2f}", f"{s.low:.1f} – {s.high:.1f}") for name, s in scores.items()
    ]
    table(escape(model), ("data set", "setting", "pairs", "score", "95 % interval"), rows)


def _save_results(folder: Path, scores: dict[str, Score], split: str | None, raw: bool) -> None:
    from bertflow.storage.cards import measured
    from bertflow.storage.model_folder import add_results

    results = []
    for name, score in scores.items():
        part = split if split is None or name in WITH_SPLITS else "test"
        results.append(measured(f"{name} (raw)" if raw else name, score, part))
    add_results(folder, results)


def compare(
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    calibrators: Annotated[
        str, typer.Option(help="Comma-separated; see `bertflow evaluate --help`.")
    ] = "none,sn,natsv-1,natsv-10,sn+natsv-6,whitening,flow",
    fit_on: FitOn = "target",
    tasks: Tasks = SEVEN,
    pairs: Pairs = None,
    split: Split = "test",
    setting: Setting = "wmean",
    metric: MetricName = None,
    seeds: Seeds = 1,
    raw: Raw = False,
    data: Data = None,
    device: Device = None,
    markdown: Markdown = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Put all calibrators on one encoder side by side: does calibration help here, and which?

        bertflow compare --encoder mini --pairs my-pairs.tsv

    The best of each column is bold; `*` marks a difference to the raw vectors that is significant (p < 0.05, paired bootstrap).
    """
    progress = start(quiet, many_fits=True)
    loaded = load_tasks(tasks, pairs, data, raw, split)
    from bertflow.encoders.transformer import as_encoder
    from bertflow.evaluation.comparison import compare_calibrators

    names = [name.strip() for name in calibrators.split(",")]
    result = compare_calibrators(
        as_encoder(encoder, pooling, device=device),
        loaded,
        names,
        fit_on=sentences_to_fit(fit_on, names),
        setting=setting,  # type: ignore[arg-type]
        metric=metric,  # type: ignore[arg-type]
        seeds=range(seeds),
        show_progress_bar=progress,
    )
    if as_json:
        print_json(result.to_dict())
        return
    if markdown:
        sys.stdout.write(result.to_markdown())
        return
    averages = {name: result.average(name) for name in result.results}
    rows = []
    for name, cells in result.results.items():
        figures = [_marked(result, name, task) for task in cells]
        average = f"{averages[name]:.2f}"
        rows.append((name, *figures, f"[bold]{average}[/]" if averages[name] == max(averages.values()) else average))
    table(_title(result, seeds), ("calibrator", *result.tasks, "average"), rows)
    say("[dim]score, 95 % interval below; bold: best; *: differs from none, p < 0.05[/]")


def _marked(result: ComparisonTable, name: str, task: str) -> str:
    cell = result.results[name][task]
    star = "*" if cell.p_value is not None and cell.p_value < 0.05 else ""
    figure = f"{cell}{star}"
    figure = f"[bold]{figure}[/]" if result.best(task) == name else figure
    return f"{figure}\n[dim]{_interval(cell)}[/]"


def _interval(cell: Result) -> str:
    return "" if cell.score.low is None else f"{cell.score.low:.1f} – {cell.score.high:.1f}"


def _title(result: ComparisonTable, seeds: int, calibrator: str | None = None) -> str:
    encoder = result.encoder
    parts = [escape(encoder["name"]), encoder.get("pooling", "")]
    if calibrator == "none":
        parts.append("raw vectors")
    else:
        parts += [calibrator or "", f"fitted on {result.fit_on}", f"seeds 0–{seeds - 1}" if seeds > 1 else "seed 0"]
    return " · ".join(part for part in parts if part)


@data.command("get")
def data_get(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: bertflow's cache folder.")] = None,
    tasks: Tasks = SEVEN + ",QNLI",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fetch the data sets from the Hugging Face hub. Its copies have no sub-sets: only the setting `all` can be had."""
    start(quiet)
    from bertflow.evaluation.download import download

    names = [name.strip() for name in tasks.split(",")]
    if not names:
        raise InputError("No data set was named.")
    folder = download(output, names)
    if as_json:
        print_json({"folder": str(folder), "tasks": names})
    else:
        say(
            f"{', '.join(names)} are in [bold]{escape(str(folder))}[/]. Next:  bertflow compare --encoder mini --setting all"
        )
