"""What the judging commands share: their options, the tasks these name, and the formats of their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.embedding import Overwrite
from bertflow.cli.output import AsJson, Device, EncoderName, Markdown, PoolingName, Quiet, say
from bertflow.errors import InputError
from bertflow.storage.outputs import check_output_file

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
Corpus = Annotated[
    Path | None, typer.Option(rich_help_panel=OWN, help="The documents to search: _id, title (optional), text.")
]
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
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets; default: $BERTFLOW_DATA, then that of `data get`."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Raw, cased sentences instead of SentEval's tokenised ones.")]
FitOn = Annotated[
    str, typer.Option(help="`target` (the data set's own sentences, no labels), a file of sentences, or `nothing`.")
]
Setting = Annotated[
    str, typer.Option(help="How the sub-sets of STS12–16 are combined: `wmean` (as in the paper), `mean` or `all`.")
]
MetricName = Annotated[
    str | None,
    typer.Option(help="Another metric than the task's own: `spearman`, `pearson`, `auc`; `mrr@10`, `recall@100`."),
]
Seeds = Annotated[int, typer.Option(help="How many seeds to fit the flow with; the mean ± sd is shown.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="`markdown`, `latex` (booktabs), `csv` or `json`; default: a table to read."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write the table to a .md, .tex, .csv or .json file; --format allows any other name."
    ),
]


@dataclass(frozen=True)
class OwnData:
    """A user's own labelled data: pairs, a search, or clusters."""

    pairs: Pairs = None
    queries: Queries = None
    corpus: Corpus = None
    qrels: Qrels = None
    texts: Texts = None
    labels: Labels = None

    def load_own(self) -> list[Task]:
        """Load the user's own tasks, one of each kind that is given."""
        from bertflow.evaluation import load_own

        return load_own(**{one.name: getattr(self, one.name) for one in fields(OwnData)})


@dataclass(frozen=True)
class JudgingOptions(OwnData):
    """What to judge, on which data, and how to show it."""

    encoder: EncoderName = "mini"
    pooling: PoolingName = None
    fit_on: FitOn = "target"
    tasks: Tasks = None
    split: Split = "test"
    setting: Setting = "wmean"
    metric: MetricName = None
    seeds: Seeds = 1
    raw: Raw = False
    data: Data = None
    device: Device = None
    form: Format = None
    output: Output = None
    overwrite: Overwrite = False
    markdown: Markdown = False
    as_json: AsJson = False
    quiet: Quiet = False

    def load_tasks(self) -> list[Task]:
        """Load the user's own tasks and those that are named; without either, the seven STS sets."""
        from bertflow.evaluation import load_task

        tasks = self.load_own()
        wanted = self.tasks if self.tasks is not None else "" if tasks else SEVEN
        for name in (name.strip() for name in wanted.split(",") if name.strip()):
            tasks.append(load_task(name, self.data, self.raw, self.split if name in WITH_SPLITS else "test"))
        return [task.judged_by(self.metric, self.setting) for task in tasks]

    def chosen_format(self) -> str | None:
        """Return the format of the table, or None for one on the terminal; refuse to lose a file over it."""
        if self.output is not None:
            own = [getattr(self, one.name) for one in fields(OwnData)]
            check_output_file(self.output, [*own, self.encoder, self.fit_on], overwrite=self.overwrite)
        return chosen_format(self.form, self.output, self.markdown, self.as_json)


def sentences_to_fit(fit_on: str, recipes: Sequence[str] | None) -> Any:
    """Return what ``--fit-on`` names, "target" or a file's sentences, after a check that the recipes exist."""
    from bertflow.evaluation.comparison import TARGET
    from bertflow.recipes import RAW, check_recipe
    from bertflow.storage.text_files import read_sentences

    known = {check_recipe(name).partition("@")[0] for name in recipes or ()}
    if fit_on == "nothing":
        if known != {RAW}:
            asked = ", ".join(recipes or ["several"])
            raise InputError(f"With --fit-on nothing, only the recipe {RAW} can be judged; asked for: {asked}.")
        return TARGET  # raw is not fitted
    return TARGET if fit_on == TARGET else read_sentences(fit_on)


def chosen_format(form: str | None, output: Path | None, markdown: bool = False, as_json: bool = False) -> str | None:
    """Return one of ``FORMATS``, or None for a table on the terminal; refuse two formats at once."""
    from bertflow.evaluation.formats import FORMATS

    said = {*([form] if form else []), *(["markdown"] if markdown else []), *(["json"] if as_json else [])}
    if len(said) > 1:
        raise InputError(f"One format can be printed; asked for: {', '.join(sorted(said))}.")
    if form is not None and form not in FORMATS:
        raise InputError(f"There is no format {form!r}; use {', '.join(FORMATS)}.")
    chosen = next(iter(said), None) or (SUFFIXES.get(output.suffix.lower()) if output else None)
    if output is not None and chosen is None:
        raise InputError(f"{output} ends in none of {', '.join(SUFFIXES)}: rename it, or give --format.")
    return chosen


def write(figures: Figures, form: str | None, output: Path | None) -> bool:
    """Write the table in a format, to a file or standard output; return False if it belongs on the terminal."""
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
