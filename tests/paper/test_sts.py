"""Tables 2 to 5 and 8 on made-up pairs and a tiny random BERT: their rows, their order, and the paper's figures beside."""

import shutil

import numpy as np
import pytest

from bertflow import InputError
from bertflow.evaluation import PairSet, PairTask
from bertflow.paper import sts, table8
from bertflow.paper.layout import PaperTable, Row
from bertflow.paper.published import SEVEN, TABLE2, TABLE3, TABLE5


@pytest.fixture
def options(tmp_path, tiny_bert, sentences, monkeypatch):
    """A data folder with NLI sentences and word vectors, and tasks of 40 made-up pairs."""
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data" / "nli").mkdir(parents=True)
    (tmp_path / "data" / "nli" / "nli_train_sentences.txt").write_text("\n".join(sentences), encoding="utf-8")
    for name in table8.TRAIN_FILES:
        (tmp_path / "data" / "nli" / name).touch()
    (tmp_path / "data" / "glove").mkdir()
    (tmp_path / "data" / "glove" / "small.txt").write_text("the 1 0 2\ncat 0 1 1\ndog 1 1 0\nhouse 2 0 1\n")
    folder = tmp_path / "tuned"
    shutil.copytree(tiny_bert, folder)

    def load(name, data=None, raw=False, split="test"):
        half = [f"the cat {text}" for text in sentences[:40]], [f"the dog {text}" for text in sentences[40:80]]
        gold = np.arange(40) % (2 if name == "QNLI" else 6)
        pairs = PairSet(*half, gold.astype(float))
        return PairTask(name, "auc" if name == "QNLI" else "spearman", {"all": pairs}, [*half[0], *half[1]])

    monkeypatch.setattr(sts, "load_task", load)
    monkeypatch.setattr(table8, "load_task", load)
    return sts.Options(str(folder), tmp_path / "data", seeds=2)


def named(table):
    return {row.name: row for row in table.rows}


def test_table2_has_the_papers_rows_and_figures(options):
    table = sts.table2(options)
    rows = named(table)
    assert list(rows) == [
        "Avg. GloVe",
        "Avg. BERT (SBERT paper)",
        "BERT CLS",
        "BERT-base",
        "BERT-base-last2avg",
        "BERT-base-flow (NLI)",
        "BERT-base-flow (target)",
    ]
    assert table.columns == (*SEVEN, "average")
    for name, row in rows.items():
        assert row.paper[:7] == TABLE2[name]
        assert row.paper[7] == pytest.approx(np.mean(TABLE2[name]))
    assert rows["Avg. BERT (SBERT paper)"].ours == (None,) * 8
    assert all(value is not None for value in rows["BERT-base-flow (NLI)"].ours)
    assert all(value is not None for value in rows["BERT-base-flow (target)"].deviation[:7])
    assert rows["BERT CLS"].ours != rows["BERT-base"].ours


def test_tables_3_and_4_want_a_tuned_encoder(options):
    assert named(sts.table3(options))["BERT-base-NLI"].paper[:7] == TABLE3["BERT-base-NLI"]
    qnli = sts.table4(options)
    assert [row.paper for row in qnli.rows] == [(70.30,), (72.52,), (76.17,)]
    with pytest.raises(InputError, match="finetune-nli"):
        sts.table3(sts.Options("mini", options.data, seeds=1))


def test_table5_fits_each_rival(options):
    table = sts.table5(options)
    assert [row.paper[0] for row in table.rows] == list(TABLE5.values())
    assert table.rows[-1].name == "flow-paper"
    assert table.rows[-1].deviation[0] is not None


def test_without_nli_sentences_that_row_is_empty(options):
    (options.data / "nli" / "nli_train_sentences.txt").unlink()
    assert named(sts.table2(options))["BERT-base-flow (NLI)"].ours == (None,) * 8


def test_table8_tunes_once_for_each_seed_and_keeps_the_models(options, tmp_path, monkeypatch):
    tuned = []

    def tune(folder, files, base, *, seed, **settings):
        tuned.append(seed)
        shutil.copytree(base, folder)
        (folder / "finetuning.json").write_text("{}")
        return folder

    monkeypatch.setattr(table8, "finetune_nli", tune)
    table = table8.run(options, folder=tmp_path / "models")
    assert [row.paper for row in table.rows] == [(77.26, 1.76), (78.07, 1.50), (81.10, 0.55)]
    assert table8.run(options, folder=tmp_path / "models") == table
    assert tuned == [0, 1]


def test_paper_ours_difference():
    rows = (Row("a", (50.0, None), (52.5, 40.0), (0.25, None)), Row("b", (1.0, 2.0), (None, 3.0)))
    table = PaperTable("Table 0", "made up", ("x", "y"), rows, {"seeds": "0–4"}, ("A note.",))
    assert list(table.cells()) == [
        ["a", "50.00 | 52.50±0.25 | +2.50", "– | 40.00 | –"],
        ["b", "1.00 | – | –", "2.00 | 3.00 | +1.00"],
    ]
    text = table.to_markdown()
    assert all(line.count("|") == 8 for line in text.splitlines() if line.startswith("|"))
    assert "seeds 0–4" in text
    assert "A note." in text
