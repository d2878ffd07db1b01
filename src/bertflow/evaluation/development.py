"""Data sets beside STS: relatedness, paraphrase, search, clusters, Chinese pairs. A row in a table each.

They lie in ``tasks`` in the folder of data sets, as their public repositories have them. Each has one split and is fitted on
its own texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bertflow.errors import InputError
from bertflow.evaluation.pairs import collect_pairs, distinct
from bertflow.evaluation.tasks import PairTask, Task, load_clusters, load_search
from bertflow.storage.text_files import Row, place, read_lines, read_table, read_tsv

Reader: TypeAlias = Callable[[Path, str], Task]

SCORED = ("sentence1", "sentence2", "score")
LABELLED = ("sentence1", "sentence2", "label")
PARADE = ("Definition1", "Definition2", "Binary labels")


@dataclass(frozen=True)
class DataSet:
    """Where a data set lies and how it is read.

    Args:
        place: Its file, or folder, in ``tasks``.
        texts: How many different texts it has: another number means another or a damaged copy.
        read: Makes the task of a path and a name.
    """

    place: str
    texts: int
    read: Reader

    def load(self, data: Path, name: str) -> Task:
        """Load the task from the folder of data sets, checked."""
        path = data / "tasks" / self.place
        if not path.exists():
            raise InputError(f"{name} is not in {data}: put it at {path}.")
        task = self.read(path, name)
        if len(task.fit_sentences) != self.texts:
            raise InputError(f"{path} has {len(task.fit_sentences)} different texts; {name} has {self.texts}.")
        return task


def _pairs(rows: Callable[[Path], Iterator[Row]]) -> Reader:
    def read(path: Path, name: str) -> Task:
        pairs, metric = collect_pairs(path, rows(path))
        return PairTask(name, metric, {"all": pairs}, distinct([pairs]))

    return read


def _search(folder: Path, name: str) -> Task:
    return load_search(folder / "queries.jsonl", folder / "corpus.jsonl", folder / "qrels.tsv", name)


def _parade(path: Path) -> Iterator[Row]:
    for number, row in read_tsv(path):
        yield number, dict(zip(LABELLED, (row[column] for column in PARADE), strict=True))


def _double_bars(path: Path) -> Iterator[Row]:
    """Rows of ``id||sentence||sentence||score``."""
    for number, line in read_lines(path):
        cells = line.split("||")
        if len(cells) != 4:
            raise InputError(f"{place(path, number)} has {len(cells)} columns between double bars; 4 were expected.")
        yield number, dict(zip(SCORED, cells[1:], strict=True))


DATA_SETS = {
    "semrel": DataSet("relatedness/semrel_eng_train.tsv", 9360, _pairs(lambda path: read_tsv(path, SCORED))),
    "parade": DataSet("paraphrase/parade_validation.tsv", 1329, _pairs(_parade)),
    "qqp": DataSet("paraphrase/qqp_dev.tsv", 19056, _pairs(lambda path: read_tsv(path, LABELLED))),
    "dbpedia": DataSet("retrieval/dbpedia", 5050, _search),
    "cisi": DataSet("retrieval/cisi", 1570, _search),
    "banking77": DataSet(
        "clustering/banking77_test.csv", 3079, lambda path, name: load_clusters(path, "category", "text", name)
    ),
    "zh-sts-dev": DataSet("zh/cnsd-sts-dev.txt", 2798, _pairs(_double_bars)),
    "lcqmc": DataSet("zh/lcqmc_dev.tsv", 15917, _pairs(lambda path: read_tsv(path, LABELLED))),
    "bq": DataSet("zh/bq_dev.csv", 6922, _pairs(read_table)),
}
