"""What the commands that judge share: their options, the tasks that these name, and the formats of their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.output import say
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.evaluation import Task
    from bertflow.evaluation.formats import Figures

SEVEN = "STS-B,SICK-R,STS12,STS13,STS14,STS15,STS16"
WITH_SPLITS = ("STS-B", "SICK-R")
OWN = "Your own data"
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}

Tasks = Annotated[
    str | None,
    typer.Option(
        help="Data sets, comma-separated: STS-B, SICK-R, STS12 … STS16, QNLI; semrel, parade, qqp, cisi, dbpedia, banking77,"
        " zh-sts-dev, lcqmc, bq. Default: the seven STS sets, or only your own files."
    ),
]
Pairs = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=OWN,
        help="Your own pairs: .tsv, .csv, .jsonl or .parquet with sentence1, sentence2, score or 0/1 label.",
    ),
]
Queries = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=OWN, help="Your own search: queries in BEIR's layout, .jsonl or a table with _id, text."
    ),
]
Corpus = Annotated[Path | None, typer.Option(rich_help_panel=OWN, help="Its documents: _id, title (optional), text.")]
Qrels = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=OWN, help="Which document answers which query: .tsv with a header; query, document, grade."
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=OWN, help="Your own clusters: a table with the column `sentence` or `text`, and labels."
    ),
]
Labels = Annotated[str | None, typer.Option(rich_help_panel=OWN, help="The column of labels in --texts.")]
Split = Annotated[str, typer.Option(help="`test`; for STS-B and SICK-R also `dev` and `train`.")]
Data = Annotated[Path | None, typer.Option(help="Folder of data sets; default: $BERTFLOW_DATA, then `data get`'s.")]
Raw = Annotated[bool, typer.Option("--raw", help="Raw, cased sentences instead of SentEval's tokenised ones.")]
FitOn = Annotated[
    str, typer.Option(help="`target` (the data set's own sentences, no labels), a file of sentences, or `nothing`.")
]
Setting = Annotated[
    str, typer.Option(help="How sub-sets of STS12–16 are joined: `wmean` (the paper), `mean` or `all`.")
]
MetricName = Annotated[
    str | None,
    typer.Option(help="Instead of what the task is judged by: `spearman`, `pearson`, `auc`; `mrr@10`, `recall@100`."),
]
Seeds = Annotated[int, typer.Option(help="How many seeds the flow is fitted with; mean ± sd is shown.")]
Format = Annotated[
    str | None, typer.Option("--format", help="`markdown`, `latex` (booktabs), `csv` or `json`; default: for reading.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the table to a file: .md, .tex, .csv or .json, or in --format."),
]


def load_tasks(
    names: str | None,
    own: dict[str, Any],
    folder: Path | None,
    raw: bool,
    split: str,
    metric: str | None = None,
    setting: str | None = None,
) -> list[Task]:
    """Load the user's own tasks and those that are named; without either, the seven STS sets."""
    from bertflow.evaluation import load_own, load_task

    tasks = load_own(**own)
    wanted = names if names is not None else "" if tasks else SEVEN
    for name in (name.strip() for name in wanted.split(",") if name.strip()):
        tasks.append(load_task(name, folder, raw, split if name in WITH_SPLITS else "test"))
    return [task.judged_by(metric, setting) for task in tasks]


def sentences_to_fit(fit_on: str, recipes: Sequence[str] | None) -> Any:
    """What ``--fit-on`` names, as ``compare_recipes`` takes it, where the recipes exist: "target", or a file's sentences."""
    from bertflow.evaluation.comparison import TARGET
    from bertflow.recipes import RAW, check_recipe
    from bertflow.storage.text_files import read_sentences

    known = {check_recipe(name).partition("@")[0] for name in recipes or ()}
    if fit_on == "nothing":
        if known != {RAW}:
            asked = ", ".join(recipes or ["several"])
            raise InputError(f"Fitted on nothing, there is only the recipe {RAW}; asked for: {asked}.")
        return TARGET  # which raw does not look at
    return TARGET if fit_on == TARGET else read_sentences(fit_on)


def chosen_format(form: str | None, output: Path | None, markdown: bool = False, as_json: bool = False) -> str | None:
    """Return one of ``FORMATS``, or None for a table on the terminal; refuse what contradicts itself."""
    from bertflow.evaluation.formats import FORMATS

    said = {*([form] if form else []), *(["markdown"] if markdown else []), *(["json"] if as_json else [])}
    if len(said) > 1:
        raise InputError(f"One format can be printed; asked for: {', '.join(sorted(said))}.")
    if form is not None and form not in FORMATS:
        raise InputError(f"There is no format {form!r}; use {', '.join(FORMATS)}.")
    chosen = next(iter(said), None) or (SUFFIXES.get(output.suffix.lower()) if output else None)
    if output is not None and chosen is None:
        raise InputError(f"{output} ends in none of {', '.join(SUFFIXES)}: rename it, or say the --format.")
    return chosen


def write(figures: Figures, form: str | None, output: Path | None) -> bool:
    """Write the table where and as it was asked for; False where it is to be shown on the terminal."""
    if form is None:
        return False
    if output is None:
        sys.stdout.write(figures.to(form))
        return True
    from bertflow.storage.atomic import atomic_file

    with atomic_file(output) as path:
        path.write_text(figures.to(form), encoding="utf-8")
    say(f"Written to [bold]{escape(str(output))}[/].")
    return True
