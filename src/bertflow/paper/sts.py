"""Tables 2 to 5: one frozen encoder, its poolings and calibrators, on the STS sets and QNLI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.evaluation import Task, find_data, load_task
from bertflow.evaluation.comparison import TARGET, compare_recipes
from bertflow.paper.layout import PaperTable, Row
from bertflow.paper.published import SEVEN, TABLE2, TABLE3, TABLE4, TABLE5
from bertflow.storage.text_files import read_sentences

LAST2AVG = "first-last-avg"  # what the paper's code computes under that name


@dataclass(frozen=True)
class Options:
    """What the figures depend on.

    Args:
        encoder: Model name or folder.
        data: Folder of data sets.
        seeds: How many seeds the flow is fitted with.
        preset: ``"paper"`` or ``"default"``.
        device: Where the encoder runs.
        show_progress_bar: Show progress.
    """

    encoder: str = "mini"
    data: Path | None = None
    seeds: int = 5
    preset: str = "paper"
    device: str | None = None
    show_progress_bar: bool = False

    @property
    def size(self) -> str:
        """Which of the paper's two model sizes to compare with."""
        return "large" if "large" in self.encoder else "base"

    @property
    def flow(self) -> str:
        """Short name of the flow fitted on target."""
        return "flow-paper" if self.preset == "paper" else "flow"

    @property
    def flow_nli(self) -> str:
        """Short name of the flow fitted on NLI sentences."""
        return "flow-paper-nli" if self.preset == "paper" else "flow"

    def settings(self) -> dict[str, Any]:
        """Return what is printed with the figures."""
        return {
            "encoder": self.encoder,
            "preset": self.preset,
            "seeds": f"0–{self.seeds - 1}",
            "STS12–16": "wmean over sub-sets",
            "last2avg": f"= {LAST2AVG}, as the paper's code computes",
        }


def table2(options: Options) -> PaperTable:
    """Table 2: no supervision."""
    name = f"BERT-{options.size}"
    tasks = [load_task(task, options.data) for task in SEVEN]
    rows = _published(TABLE2, ("Avg. BERT (SBERT paper)",))
    glove = find_data(options.data) / "glove"
    vectors = next(iter(sorted(glove.glob("*.txt"))), None)
    if vectors is not None:
        rows.insert(0, _row("Avg. GloVe", TABLE2["Avg. GloVe"], str(vectors), None, "none", TARGET, tasks, options))
    rows.append(_row("BERT CLS", TABLE2["BERT CLS"], options.encoder, "cls", "none", TARGET, tasks, options))
    rows += _ladder(name, TABLE2, tasks, options)
    notes = [f"Avg. GloVe is {vectors.name}."] if vectors is not None else ["No GloVe file in the data folder."]
    return _table("Table 2", "no supervision, Spearman ×100", rows, options, notes)


def table3(options: Options) -> PaperTable:
    """Table 3: an encoder fine-tuned on NLI (`bertflow finetune-nli` makes one)."""
    others = [row for row in TABLE3 if not row.startswith("BERT-")]
    tasks = [load_task(task, options.data) for task in SEVEN]
    rows = _published(TABLE3, others) + _ladder(f"BERT-{options.size}-NLI", TABLE3, tasks, options)
    return _table("Table 3", "NLI supervision, Spearman ×100", rows, options, [_tuned(options)])


def table4(options: Options) -> PaperTable:
    """Table 4: QNLI dev as an unsupervised task, AUC ×100."""
    name = f"BERT-{options.size}-NLI"
    published = {row: (figure,) for row, figure in TABLE4.items()}
    rows = _ladder(name, published, [load_task("QNLI", options.data)], options)[1:]
    return _table("Table 4", "QNLI, AUC ×100", rows, options, [_tuned(options)], ("QNLI",))


def table5(options: Options) -> PaperTable:
    """Table 5: other calibrations on STS-B test, average of the last layer."""
    names = [options.flow if name == "flow" else name for name in TABLE5]
    task = load_task("STS-B", options.data)
    encoder = as_encoder(options.encoder, "mean", device=options.device)
    result = compare_recipes(
        encoder,
        [task],
        names,
        seeds=range(options.seeds),
        resamples=0,
        show_progress_bar=options.show_progress_bar,
    )
    rows = []
    for name, figure in zip(names, TABLE5.values(), strict=True):
        cell = result.results[name]["STS-B"]
        rows.append(Row(name, (figure,), (cell.value,), (cell.deviation,)))
    return _table("Table 5", "calibrations on STS-B test, pooling mean, Spearman ×100", rows, options, (), ("STS-B",))


def nli_sentences(data: Path | None) -> list[str] | None:
    """Return the sentences of SNLI and MNLI from the data folder, where they are."""
    path = find_data(data) / "nli" / "nli_train_sentences.txt"
    return read_sentences(path) if path.is_file() else None


def _ladder(name: str, published: Any, tasks: Sequence[Task], options: Options) -> list[Row]:
    """The four rows that every encoder has: mean, last2avg, and the flow on top of it, fitted on NLI and on target."""
    sentences = nli_sentences(options.data)
    empty = (None,) * len(tasks)
    rows = [_row(name, published.get(name, empty), options.encoder, "mean", "none", TARGET, tasks, options)]
    for suffix, calibrator, fit_on in (
        ("-last2avg", "none", TARGET),
        ("-flow (NLI)", options.flow_nli, sentences),
        ("-flow (target)", options.flow, TARGET),
    ):
        row, paper = name + suffix, published.get(name + suffix, empty)
        if fit_on is None:
            rows.append(Row(row, paper, empty))
        else:
            rows.append(_row(row, paper, options.encoder, LAST2AVG, calibrator, fit_on, tasks, options))
    return rows


def _row(
    name: str,
    paper: tuple[float | None, ...],
    encoder: str,
    pooling: str | None,
    calibrator: str,
    fit_on: str | Sequence[str],
    tasks: Sequence[Task],
    options: Options,
) -> Row:
    result = compare_recipes(
        as_encoder(encoder, pooling, device=options.device),
        tasks,
        [calibrator],
        fit_on=fit_on,
        seeds=range(options.seeds),
        resamples=0,
        show_progress_bar=options.show_progress_bar,
    )
    cells = [result.results[calibrator][task.name] for task in tasks]
    return Row(name, paper, tuple(cell.value for cell in cells), tuple(cell.deviation for cell in cells))


def _published(table: Mapping[str, tuple[float, ...]], names: Sequence[str]) -> list[Row]:
    """Rows of systems that we do not run."""
    return [Row(name, table[name], (None,) * len(table[name])) for name in names]


def _table(
    number: str,
    title: str,
    rows: Sequence[Row],
    options: Options,
    notes: Sequence[str] = (),
    columns: tuple[str, ...] = SEVEN,
) -> PaperTable:
    if len(columns) > 1:
        rows = [_with_average(row) for row in rows]
        columns = (*columns, "average")
    notes = [*notes, *([] if "bert-" in options.encoder.lower() else [_other_encoder(options)])]
    return PaperTable(number, title, columns, tuple(rows), options.settings(), tuple(notes))


def _with_average(row: Row) -> Row:
    paper, ours = (
        (*figures, None if None in figures else float(np.mean(figures)))  # type: ignore[arg-type]
        for figures in (row.paper, row.ours)
    )
    return Row(row.name, paper, ours, (*row.deviation, None) if row.deviation else ())


def _other_encoder(options: Options) -> str:
    return (
        f"The paper's figures are BERT-{options.size}'s; ours are those of {Path(options.encoder).name}. Compare the steps, "
        "not the figures. The real reproduction is --encoder bert-base-uncased, which needs the Hugging Face hub."
    )


def _tuned(options: Options) -> str:
    if options.encoder == "mini":
        raise InputError(
            "This table is about an encoder fine-tuned on NLI: run  bertflow finetune-nli mini-nli --train FILE  first, then "
            "give  --encoder mini-nli ."
        )
    return "The encoder is taken as it is; `bertflow finetune-nli` makes one from SNLI and MNLI."
