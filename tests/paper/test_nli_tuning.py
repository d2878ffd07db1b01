"""Fine-tuning on NLI: made-up rows, a tiny random BERT, and the promise that a killed run ends where it would have ended."""

import json
import random
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from bertflow import Encoder, InputError, MissingExtraError, ModelFolderError
from bertflow.paper.nli_data import LABELS, download_nli, read_nli
from bertflow.paper.nli_tuning import finetune_nli

missing = [name for name in ("sentence_transformers", "accelerate", "datasets") if find_spec(name) is None]
needs_nli = pytest.mark.skipif(bool(missing), reason=f"{missing} not installed: run  pip install 'bertflow[nli]'")

SUBJECTS = ["the cat", "a dog", "the bird", "a red house", "the blue mat", "green tea"]
ENDS = {"sat on the mat": "entailment", "runs fast": "neutral", "sings then sat": "contradiction"}
ROWS = [(f"{subject} sat", f"{subject} {end}", label) for subject in SUBJECTS for end, label in ENDS.items()]
SETTINGS = {"epochs": 2, "batch_size": 2, "learning_rate": 1e-3, "device": "cpu"}  # 18 steps, a checkpoint every 5


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # batches of two short sentences: more threads only wait for each other
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def nli_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("nli") / "train.tsv", ROWS)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path, nli_file: Path) -> Path:
    """A run that nothing interrupted; do not change it."""
    return finetune_nli(tmp_path_factory.mktemp("finished") / "model", nli_file, tiny_bert, **SETTINGS)


def write(path: Path, rows) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def difference(a: Path, b: Path) -> float:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


# Reading


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bare.tsv", 'a "cat" sat\tit sat\tneutral\nb\tc\tentailment\n'),
        ("headed.tsv", 'label\thypothesis\tpremise\nneutral\tit sat\ta "cat" sat\nentailment\tc\tb\n'),
        ("glue.tsv", 'index\tsentence1\tsentence2\tgold_label\n0\ta "cat" sat\tit sat\tneutral\n1\tb\tc\tentailment\n'),
        ("a.csv", 'premise,hypothesis,label\n"a ""cat"" sat",it sat,1\nb,c, Entailment\n'),
        (
            "a.jsonl",
            '{"premise": "a \\"cat\\" sat", "hypothesis": "it sat", "label": 1}\n'
            '{"sentence1": "b", "sentence2": "c", "gold_label": "entailment", "pairID": "x"}\n',
        ),
    ],
)
def test_every_layout_gives_the_same_rows(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    rows = read_nli(tmp_path / name)
    assert rows.premises == ['a "cat" sat', "b"]
    assert rows.hypotheses == ["it sat", "c"]
    assert rows.labels == [LABELS["neutral"], LABELS["entailment"]]
    assert not rows.left_out


def test_parquet_too(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"premise": ["a"], "hypothesis": ["b"], "label": [2]}), tmp_path / "a.parquet")
    assert read_nli(tmp_path / "a.parquet").labels == [2]


def test_rows_without_gold_or_text_are_left_out_and_counted(tmp_path, caplog):
    file = write(tmp_path / "a.tsv", [("a", "b", "-"), ("a", "b", "neutral"), ("a", " ", "neutral"), ("c", "d", "-1")])
    with caplog.at_level("INFO", "bertflow"):
        rows = read_nli([file, file])
    assert len(rows) == 2
    assert rows.left_out == {"no gold label": 4, "blank sentence": 2}
    assert "left out: 4 with no gold label, 2 with blank sentence" in caplog.text


@pytest.mark.parametrize("label", ["entails", "3", "1.0", "", "true"])
def test_another_label_is_an_error_that_names_file_and_line(tmp_path, label):
    file = write(tmp_path / "odd.tsv", [("a", "b", "neutral"), ("a", "b", label)])
    with pytest.raises(
        InputError, match=r"odd\.tsv, line 2, has the label .* wanted: entailment, neutral, contradiction"
    ):
        read_nli(file)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"premise": "a", "label": 0}', "line 1, has no column hypothesis or sentence2; it has: premise, label"),
        ('{"premise": 3, "hypothesis": "b", "label": 0}', "line 1, has 3 for a sentence"),
        ('{"premise": "\\ud800", "hypothesis": "b", "label": 0}', "lone surrogate"),
        ('{"premise": "a", "hypothesis": "b", "label": "-"}', "holds no labelled pair .*1 with no gold label"),
    ],
)
def test_unusable_rows_are_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_nli(tmp_path / "a.jsonl")


def test_a_bare_tsv_has_three_columns(tmp_path):
    with pytest.raises(InputError, match=r"line 1, has 4 column\(s\); 3 were expected: premise, hypothesis, label"):
        read_nli(write(tmp_path / "a.tsv", [("0", "a", "b", "neutral")]))


@needs_nli
def test_offline_the_hub_sets_are_refused_in_one_sentence(monkeypatch):
    import datasets

    def offline(*_, **__):
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(
        InputError, match=r"stanfordnlp/snli could not be fetched .*no route\): check the network, or give"
    ):
        download_nli()


@needs_nli
def test_the_hub_sets_come_one_after_the_other(monkeypatch):
    import datasets

    rows = {
        "stanfordnlp/snli": [{"premise": "a", "hypothesis": "b", "label": -1}],
        "nyu-mll/multi_nli": [{"premise": "c", "hypothesis": "d", "label": 2, "genre": "fiction"}],
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: rows[name])
    got = download_nli()
    assert (got.premises, got.labels, got.left_out) == (["c"], [2], {"no gold label": 1})


# Training


@needs_nli
def test_the_folder_opens_in_encoder_and_in_sentence_transformer(finished, sentences, tiny_bert):
    from sentence_transformers import SentenceTransformer

    encoder = Encoder(finished, "mean", device="cpu")
    ours = encoder.encode(sentences[:20])
    theirs = SentenceTransformer(str(finished), device="cpu").encode(sentences[:20], show_progress_bar=False)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours - Encoder(tiny_bert, "mean", device="cpu").encode(sentences[:20])).max() > 1e-2
    assert encoder.max_length == Encoder(tiny_bert, device="cpu").max_length
    assert encoder.model.dtype == torch.float32


@needs_nli
def test_the_record_tells_the_run_and_no_checkpoint_stays(finished, nli_file, tiny_bert):
    record = json.loads((finished / "finetuning.json").read_text())
    assert record["base"] == str(tiny_bert)
    assert record["files"] == [str(nli_file)]
    assert (record["rows"], record["left_out"], record["steps"]) == (18, {}, 18)
    assert (record["epochs"], record["batch_size"], record["learning_rate"], record["seed"]) == (2, 2, 1e-3, 0)
    assert 0 < record["final_loss"] < 3
    assert [path.name for path in finished.parent.iterdir()] == ["model"]
    card = (finished / "README.md").read_text()
    assert not any(premise in card for premise, _, _ in ROWS)


@needs_nli
@pytest.mark.parametrize("killed_at", [7, 17])  # in the first epoch, and in the second
def test_a_killed_run_goes_on_and_ends_where_it_would_have_ended(tmp_path, finished, tiny_bert, nli_file, killed_at):
    def kill(figures):
        if figures["step"] == killed_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS, callbacks=[kill])
    assert not (tmp_path / "model").exists()
    (tmp_path / "model.checkpoints" / "checkpoint-18").mkdir()  # as if killed while writing it

    steps = []
    finetune_nli(
        tmp_path / "model", nli_file, tiny_bert, **SETTINGS, callbacks=[lambda figures: steps.append(figures["step"])]
    )
    last = killed_at // 5 * 5
    assert steps == list(range(last + 1, 19))
    assert json.loads((tmp_path / "model" / "finetuning.json").read_text())["resumed_from_step"] == last
    assert difference(tmp_path / "model", finished) < 1e-6
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@needs_nli
def test_checkpoints_of_another_run_are_not_mixed_in(tmp_path, finished, tiny_bert, nli_file, caplog):
    def kill(figures):
        if figures["step"] == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS | {"learning_rate": 1e-4}, callbacks=[kill])
    with pytest.raises(InputError, match=r"another run \(learning_rate 0.0001, now 0.001\): .* --no-resume"):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS)
    finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS, resume=False)
    assert difference(tmp_path / "model", finished) == 0
    with caplog.at_level("INFO", "bertflow"):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS | {"epochs": 0.1})
    assert "holds another fine-tuning, which this one will replace" in caplog.text
    assert json.loads((tmp_path / "model" / "finetuning.json").read_text())["epochs"] == 0.1


@needs_nli
def test_what_is_finished_is_not_done_again(finished, tiny_bert, nli_file):
    def never(figures):
        raise AssertionError("trained again")

    before = (finished / "finetuning.json").stat().st_mtime_ns
    left = finished.with_name("model.checkpoints")
    left.mkdir()  # as if killed between the last two steps
    (left / "run.json").write_text((finished / "finetuning.json").read_text())
    assert finetune_nli(finished, nli_file, tiny_bert, **SETTINGS, callbacks=[never]) == finished
    assert (finished / "finetuning.json").stat().st_mtime_ns == before
    assert not left.exists()


@needs_nli
def test_global_random_states_are_left_alone_and_the_seed_decides(tmp_path, finished, tiny_bert, nli_file):
    torch.manual_seed(5), random.seed(5), np.random.seed(5)  # noqa: NPY002
    wanted = float(torch.rand(1)), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(5), random.seed(5), np.random.seed(5)  # noqa: NPY002
    finetune_nli(tmp_path / "a", nli_file, tiny_bert, **SETTINGS, seed=1)
    assert (float(torch.rand(1)), random.random(), np.random.rand()) == wanted  # noqa: NPY002
    assert difference(tmp_path / "a", finished) > 1e-4


@needs_nli
def test_the_terminal_stays_quiet(tmp_path, tiny_bert, nli_file, capfd):
    finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS | {"epochs": 0.2})
    assert capfd.readouterr() == ("", "")


@needs_nli
def test_a_foreign_folder_is_refused_and_kept(tmp_path, tiny_bert, nli_file):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(
        ModelFolderError, match="is not a model that `bertflow finetune-nli` wrote; nothing was written"
    ):
        finetune_nli(tmp_path, nli_file, tiny_bert)
    (tmp_path / "model.checkpoints").mkdir()
    (tmp_path / "model.checkpoints" / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match="holds something else"):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, resume=False)
    assert (tmp_path / "model.checkpoints" / "notes.txt").is_file()


@needs_nli
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "first-last-avg"}, "it has mean, cls, max"),
        ({"epochs": 0}, "epochs must be positive; it was 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"warmup": 1.5}, "below 1; it was 1.5"),
        ({"device": "tpu9"}, "is not a device"),
    ],
)
def test_settings_are_checked_first(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        finetune_nli(tmp_path / "model", tmp_path / "absent.tsv", **options)


@needs_nli
@pytest.mark.parametrize("kind", ["gpt2", "roberta"])  # no padding token; fewer positions than the default length
def test_other_families_can_be_tuned(tmp_path, tiny, kind, nli_file, sentences):
    finetune_nli(tmp_path / "model", nli_file, tiny(kind), **SETTINGS | {"epochs": 0.1}, pooling="max")
    assert Encoder(tmp_path / "model", "max", device="cpu", max_length=30).encode(["a cat", "tea"]).shape == (2, 16)


@needs_nli
def test_a_decoder_is_refused(tmp_path, tiny, nli_file):
    with pytest.raises(InputError, match="has a decoder too"):
        finetune_nli(tmp_path / "model", nli_file, tiny("t5"), **SETTINGS)


@needs_nli
def test_divergence_is_said_and_leaves_nothing(tmp_path, tiny_bert, nli_file):
    with pytest.raises(InputError, match="diverged"):
        finetune_nli(tmp_path / "model", nli_file, tiny_bert, **SETTINGS | {"learning_rate": 1e36})
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_the_pip_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"bertflow\[nli\]"):
        finetune_nli(tmp_path / "model", tmp_path / "a.tsv")


@needs_nli
def test_the_command_says_what_came_out_and_what_to_run_next(tmp_path, tiny_bert, nli_file, monkeypatch):
    import typer
    from typer.testing import CliRunner

    from bertflow.cli import finetuning

    monkeypatch.setattr(finetuning, "start", lambda quiet: False)  # logging and warnings are pytest's here
    app = typer.Typer()
    app.command()(finetuning.finetune_nli)
    arguments = [
        str(tmp_path / "model"),
        "--train",
        str(nli_file),
        "--train",
        str(nli_file),
        "--encoder",
        str(tiny_bert),
    ]
    arguments += ["--epochs", "0.1", "--batch-size", "4", "--learning-rate", "1e-3", "--seed", "3", "--device", "cpu"]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert "Tuned on 36 pairs (0 left out) in 1 steps" in shown
    assert "bertflow reproduce table3 --encoder" in shown
    record = json.loads(CliRunner().invoke(app, [*arguments, "--json", "--quiet"], catch_exceptions=False).output)
    assert (record["saved"], record["seed"], record["learning_rate"]) == (str(tmp_path / "model"), 3, 1e-3)
