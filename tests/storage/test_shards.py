"""Shards: the same bytes whatever happened on the way, refused when they belong to something else, flat in memory."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

import bertflow.scale.fitting as fitting
import bertflow.storage.shards.writing as writing
from bertflow import BertFlow, FlowCalibrator, Whitening
from bertflow.errors import InputError, TruncationWarning
from bertflow.scale import fit_shards, transform_shards, write_shards
from bertflow.storage.checksums import sealed
from bertflow.storage.shards import Rank, Shards, ShardsError, ShardWriter, local_device
from bertflow.storage.shards.lock import SILENCE

DIM = 8
TEXTS = [f"sentence {i}" for i in range(1000)] + [""]


class HashEncoder:
    """Vectors from a hash of each text; counts what it was asked to encode."""

    name = "hash"

    def __init__(self, fail_after: int = 10**9, fingerprint: str = "one", scale: float = 1.0):
        self.dim, self.fingerprint, self.scale, self.left, self.seen = DIM, fingerprint, scale, fail_after, []

    def describe(self):
        return {"name": self.name, "dim": self.dim, "fingerprint": self.fingerprint}

    def encode(self, sentences, *, show_progress_bar=False):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.seen += sentences
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=DIM) for text in sentences]
        return (np.stack(rows) * self.scale).astype(np.float32)


def write(folder, source=None, **options):
    source = source or HashEncoder()
    return write_shards(TEXTS, source, folder, **{"shard_rows": 150, "dtype": "float32"} | options)


def content(folder):
    """The files, but for what views learnt: these learn nothing."""
    assert not (views := Path(folder) / "views").exists() or not list(views.iterdir())
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}


@pytest.fixture(scope="module")
def expected():
    return HashEncoder().encode(TEXTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder written without any trouble; do not change it."""
    folder = tmp_path_factory.mktemp("shards") / "vectors"
    write(folder)
    return folder


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 0), ("float16", 1e-3)])
@pytest.mark.parametrize("shard_rows", [1, 143, 1001, 50_000])
def test_row_i_belongs_to_text_i(tmp_path, expected, dtype, tolerance, shard_rows):
    count = 20 if shard_rows == 1 else len(TEXTS)
    write_shards(TEXTS[-count:], HashEncoder(), tmp_path / "v", dtype=dtype, shard_rows=shard_rows)
    shards = Shards(tmp_path / "v")
    assert (len(shards), shards.dim, shards.manifest.dtype) == (count, DIM, dtype)
    np.testing.assert_allclose(
        np.concatenate(list(shards.blocks(97))), expected[-count:], rtol=tolerance, atol=tolerance
    )
    shards.verify()


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1001), (149, 151), (150, 300), (1000, 1001), (77, 900)])
def test_rows_across_shards(whole, expected, start, stop):
    rows = Shards(whole).rows(start, stop)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, expected[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4), (0, 1002)])
def test_rows_that_are_not_there(whole, start, stop):
    with pytest.raises(InputError, match="there are rows 0 to 1001"):
        Shards(whole).rows(start, stop)


def test_a_shard_is_a_plain_npy_file(whole, expected):
    np.testing.assert_array_equal(np.load(whole / "00001.npy"), expected[150:300])
    assert sorted(content(whole)) == [*(f"{i:05d}.npy" for i in range(7)), "manifest.json"]


def test_sample_is_seeded_and_without_repeats(whole, expected):
    shards = Shards(whole)
    sample = shards.sample(300, seed=1)
    places = [int(np.flatnonzero((expected == row).all(axis=1))[0]) for row in sample]
    assert places == sorted(set(places))
    assert 400 < np.mean(places) < 600
    np.testing.assert_array_equal(sample, shards.sample(300, seed=1))
    assert not np.array_equal(sample, shards.sample(300, seed=2))
    np.testing.assert_array_equal(shards.sample(5000), expected)


@pytest.mark.parametrize("size", [64, 1000, 5000])
def test_a_shuffled_pass_sees_every_row_once(whole, expected, size, monkeypatch):
    monkeypatch.setattr("bertflow.storage.shards.reading.RUN_ROWS", 32)
    blocks = list(Shards(whole).shuffled(size, seed=3))
    assert [len(block) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    rows = np.concatenate(blocks)
    assert not np.array_equal(rows, expected)
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], expected[np.lexsort(expected.T)])
    np.testing.assert_array_equal(rows, np.concatenate(list(Shards(whole).shuffled(size, seed=3))))


@pytest.mark.parametrize("calls", [0, 1, 4])
def test_a_stopped_run_goes_on_where_it_was(tmp_path, whole, calls):
    with pytest.raises(KeyboardInterrupt):
        write_shards(TEXTS, HashEncoder(fail_after=calls), tmp_path / "v", shard_rows=150, dtype="float32")
    with pytest.raises(ShardsError, match=f"of 7 shards {7 - calls} are missing"):
        Shards(tmp_path / "v")
    again = HashEncoder()
    write_shards(TEXTS, again, tmp_path / "v", shard_rows=150, dtype="float32")
    assert again.seen == TEXTS[150 * calls :]
    assert content(tmp_path / "v") == content(whole)


def test_a_finished_run_does_nothing(tmp_path, whole):
    write(tmp_path / "v")
    idle = HashEncoder(fail_after=0)
    write_shards(TEXTS, idle, tmp_path / "v", shard_rows=150, dtype="float32")
    assert content(tmp_path / "v") == content(whole)


def test_kill_9_loses_and_doubles_nothing(tmp_path, whole):
    script = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_shards import HashEncoder, TEXTS, write_shards
        class Slow(HashEncoder):
            def encode(self, sentences, **options):
                time.sleep(0.2)
                return super().encode(sentences)
        write_shards(TEXTS, Slow(), sys.argv[1], shard_rows=150, dtype="float32")
    """)
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "v")])
    deadline = time.monotonic() + 60
    while not (tmp_path / "v" / "00001.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "v" / "rank-0.lock").exists()
    (tmp_path / "v" / ".00003.npy.saving-x1.npy").write_bytes(b"half")  # as a kill in the middle of a write leaves it
    with pytest.raises(ShardsError, match="not finished"):
        Shards(tmp_path / "v")
    write(tmp_path / "v")
    assert content(tmp_path / "v") == content(whole)


def test_ranks_share_the_work(tmp_path, whole):
    for number in (2, 0):
        encoder = HashEncoder()
        write_shards(TEXTS, encoder, tmp_path / "v", shard_rows=150, dtype="float32", rank=Rank(number, 3))
        assert encoder.seen[0] == TEXTS[150 * number]
    with pytest.raises(ShardsError, match=r"2 are missing \(1, 4\)"):
        Shards(tmp_path / "v")
    write(tmp_path / "v", rank=Rank(1, 3))
    assert content(tmp_path / "v") == content(whole)


def test_ranks_that_came_too_late_to_see_each_other_can_be_read(tmp_path, expected, monkeypatch):
    monkeypatch.setattr(ShardWriter, "_finish", lambda self: None)
    write(tmp_path / "v", rank=Rank(0, 2))
    write(tmp_path / "v", rank=Rank(1, 2))
    np.testing.assert_array_equal(Shards(tmp_path / "v").rows(0, 1001), expected)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, Rank(3, 8)),
        ({"RANK": "3"}, Rank(0, 1)),
        ({"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2"}, Rank(1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, Rank(1, 4)),
        ({"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_COUNT": "3"}, Rank(2, 3)),
        (
            {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            Rank(3, 6),
        ),
    ],
)
def test_rank_of_the_environment(environment, rank):
    assert Rank.of(environment) == rank


@pytest.mark.parametrize(("number", "world_size"), [(2, 2), (-1, 2), (0, 0), (1, None), (None, 2)])
def test_ranks_that_make_no_sense(number, world_size):
    with pytest.raises(InputError, match=r"[Rr]ank"):
        Rank.choose(number, world_size)


def test_each_process_of_a_machine_takes_its_own_gpu(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert local_device(None) == "cuda:1"
    assert local_device("cpu") == "cpu"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert local_device(None) is None


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def alter(path):
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [truncate, alter, Path.unlink])
def test_a_harmed_shard_is_found_and_only_that_one_written_anew(tmp_path, whole, harm, caplog):
    write(tmp_path / "v")
    harm(tmp_path / "v" / "00002.npy")
    with pytest.raises(ShardsError, match="2"):
        Shards(tmp_path / "v").verify()
    encoder = HashEncoder()
    write_shards(TEXTS, encoder, tmp_path / "v", shard_rows=150, dtype="float32")
    assert "00002.npy is lost, cut short or altered" in caplog.text
    assert encoder.seen == TEXTS[300:450]
    assert content(tmp_path / "v") == content(whole)


def test_a_full_disk_is_a_sentence_and_costs_one_shard(tmp_path, whole, monkeypatch):
    real, calls = writing.atomic_file, []

    def full(path, **options):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, **options)

    monkeypatch.setattr(writing, "atomic_file", full)
    with pytest.raises(ShardsError, match=r"No space left on device.*run the same command again"):
        write(tmp_path / "v")
    assert sorted(content(tmp_path / "v")) == ["00000.json", "00000.npy", "00001.json", "00001.npy", "manifest.json"]
    write(tmp_path / "v")
    assert content(tmp_path / "v") == content(whole)


def test_a_write_cut_short_by_the_system_leaves_no_half_shard(tmp_path, whole):
    resource = pytest.importorskip("resource", reason="only Unix limits the size of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # a shard has 4 928 bytes
    try:
        with pytest.raises(ShardsError, match="File too large"):
            write(tmp_path / "v")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(content(tmp_path / "v")) == ["manifest.json"]
    write(tmp_path / "v")
    assert content(tmp_path / "v") == content(whole)


def hold(folder, age=0.0, **holder):
    folder.mkdir(exist_ok=True)
    path = folder / "rank-0.lock"
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "world_size": 1} | holder))
    os.utime(path, (time.time() - age,) * 2)


@pytest.mark.parametrize(
    ("holder", "rank"),
    [
        ({"pid": os.getppid()}, Rank(0, 1)),
        ({"host": "elsewhere", "pid": 1}, Rank(0, 1)),
        ({"pid": os.getppid(), "world_size": 2}, Rank(1, 3)),
    ],
)
def test_a_living_writer_is_left_alone(tmp_path, holder, rank):
    hold(tmp_path / "v", **holder)
    with pytest.raises(ShardsError, match=f"being written by process {holder['pid']} on"):
        write(tmp_path / "v", rank=rank)
    assert (tmp_path / "v" / "rank-0.lock").exists()


@pytest.mark.parametrize(
    "holder",
    [
        {"pid": 2**22 + 1},  # no such process
        {"pid": os.getpid()},  # another one before us, in a container of the same name
        {"pid": os.getppid(), "age": SILENCE + 60},
        {"host": "elsewhere", "pid": 1, "age": SILENCE + 60},
    ],
)
def test_a_dead_writer_does_not_hold_us_up(tmp_path, whole, holder):
    hold(tmp_path / "v", **holder)
    write(tmp_path / "v")
    assert content(tmp_path / "v") == content(whole)


@pytest.mark.parametrize("rank", [Rank(0, 1), Rank(1, 2)])
def test_two_writers_in_one_process(tmp_path, whole, rank):
    with ShardWriter(tmp_path / "v", Shards(whole).manifest) as writer:
        with pytest.raises(ShardsError, match="being written by process"):
            write(tmp_path / "v", rank=rank)
        assert writer.missing == list(range(7))
    assert not (tmp_path / "v" / "rank-0.lock").exists()


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ([], "only 0 came"),
        ([np.zeros((151, DIM))], "takes 150 rows"),
        ([np.zeros((100, DIM)), np.zeros((50, 3))], "of 8 dimensions"),
    ],
)
def test_blocks_that_do_not_make_the_shard(tmp_path, whole, blocks, sentence):
    with ShardWriter(tmp_path / "v", Shards(whole).manifest) as writer, pytest.raises(InputError, match=sentence):
        writer.write(0, blocks)
    assert sorted(content(tmp_path / "v")) == ["manifest.json"]


@pytest.mark.parametrize(
    ("texts", "encoder", "options", "sentence"),
    [
        (TEXTS, HashEncoder(fingerprint="two"), {}, "the encoder 'hash' .fingerprint one"),
        ([*TEXTS[:-1], "another"], HashEncoder(), {}, "the text of 1,001 rows"),
        (TEXTS[:-1], HashEncoder(), {}, "the text of 1,000 rows"),
        (TEXTS, HashEncoder(), {"dtype": "float16"}, "dtype=float32"),
        (TEXTS, HashEncoder(), {"shard_rows": 100}, "shard_rows=150"),
        (TEXTS, HashEncoder(), {"normalize": True}, "normalized=False"),
        (TEXTS, HashEncoder(), {"recipe": "whitening"}, "the views of the encoder itself"),
        (TEXTS, BertFlow.fit(TEXTS, HashEncoder(), calibrator=Whitening()), {}, "the views of the encoder itself"),
    ],
)
def test_shards_of_something_else_are_refused(whole, texts, encoder, options, sentence):
    before = content(whole)
    with pytest.raises(InputError, match=sentence):
        write_shards(texts, encoder, whole, **{"shard_rows": 150, "dtype": "float32"} | options)
    assert content(whole) == before


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ShardsError, match="something else than shards"):
        write(tmp_path)
    with pytest.raises(ShardsError, match="could not be written: Not a directory"):
        write(tmp_path / "mine.txt" / "v")
    with pytest.raises(ShardsError, match="holds no manifest"):
        Shards(tmp_path)
    with pytest.raises(ShardsError, match="does not exist"):
        Shards(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c | {"format": "x"}, "another program"),
        (lambda c: c | {"format_version": 99}, "pip install --upgrade"),
        (lambda c: {k: v for k, v in c.items() if k != "rows"}, "was changed by another program"),
        (lambda c: sealed({k: v for k, v in c.items() if k != "rows"}), r"damaged \('rows'\)"),
        (lambda c: sealed(c | {"rows": 10**9, "shard_rows": 1}), "too many files"),
        (lambda c: c | {"encoder": {}}, "was changed by another program"),
        (lambda c: [c], "damaged"),
    ],
)
def test_manifests_that_cannot_be_read(tmp_path, whole, change, sentence):
    changed = change(json.loads((whole / "manifest.json").read_text()))
    (tmp_path / "manifest.json").write_text(json.dumps(changed))
    with pytest.raises(ShardsError, match=sentence):
        Shards(tmp_path)


def test_an_altered_shard_is_not_read(whole, tmp_path):
    """By whatever reads it: rows, blocks, samples, fits; the others of the folder stay readable."""
    shutil.copytree(whole, tmp_path / "altered")
    path = tmp_path / "altered" / "00001.npy"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    shards = Shards(tmp_path / "altered")
    first = shards.manifest.shard_rows
    assert len(shards.rows(0, first)) == first
    for read in (lambda: shards.rows(0, len(shards)), lambda: list(shards.blocks()), lambda: shards.sample(500)):
        with pytest.raises(ShardsError, match=r"00001\.npy is damaged.*this shard alone is written again"):
            read()


@pytest.mark.parametrize(
    ("scale", "dtype", "sentence"),
    [(1e6, "float16", "too large for float16"), (np.nan, "float32", "NaN"), (1.0, "int8", "float16 or float32")],
)
def test_vectors_that_cannot_be_kept(tmp_path, scale, dtype, sentence):
    with pytest.raises(InputError, match=sentence):
        write_shards(TEXTS, HashEncoder(scale=scale), tmp_path / "v", dtype=dtype)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ((text for text in TEXTS), "only once"),
        ([], "no text"),
        (["a", None], "Text 1"),
        (["a\ud800"], "whole characters"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path, texts, sentence):
    with pytest.raises(InputError, match=sentence):
        write_shards(texts, HashEncoder(), tmp_path / "v")


def test_a_text_that_shrinks_meanwhile(tmp_path):
    texts = list(TEXTS)

    class Meddling(HashEncoder):
        def describe(self):  # asked for between counting and encoding
            del texts[200:]
            return super().describe()

    with pytest.raises(ShardsError, match="became shorter"):
        write_shards(texts, Meddling(), tmp_path / "v", shard_rows=150)


def test_cut_texts_are_warned_of_once(tmp_path):
    class Cutting(HashEncoder):
        def encode(self, sentences, **options):
            warnings.warn(f"{len(sentences)} texts were cut", TruncationWarning, stacklevel=2)
            return super().encode(sentences)

    with pytest.warns(TruncationWarning) as caught:
        write_shards(TEXTS, Cutting(), tmp_path / "v", shard_rows=150)
    assert len(caught) == 1


@pytest.mark.parametrize("recipe", ["whitening", "whitening-3", "sn", Whitening()], ids=str)
def test_affine_calibrators_see_every_row(whole, expected, recipe):
    model = fit_shards(Shards(whole), recipe, rows=10)
    exact = BertFlow.fit(TEXTS, HashEncoder(), recipe=recipe if isinstance(recipe, str) else "whitening")
    np.testing.assert_allclose(model.calibrator.transform(expected), exact.encode(TEXTS), atol=1e-5)
    assert (model.training["vectors"], model.training["fitted_vectors"]) == (1001, 1001)
    assert model.recipe == (recipe if isinstance(recipe, str) else None)


def test_a_flow_is_fitted_on_the_sample(whole):
    shards = Shards(whole)
    model = fit_shards(shards, "flow", rows=500, random_state=4)
    direct = FlowCalibrator(random_state=4).fit(shards.sample(500, 4))
    np.testing.assert_array_equal(model.calibrator.transform(shards.rows(0, 50)), direct.transform(shards.rows(0, 50)))
    assert model.training["fitted_vectors"] == 500


def test_a_full_pass_goes_through_every_block(whole, expected, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLE_ROWS", 400)
    seen = []
    calibrator = FlowCalibrator(
        random_state=0, batch_size=50, callbacks=[lambda log: seen.append(log["learning_rate"])]
    )
    model = fit_shards(Shards(whole), calibrator, rows=None)
    fitted = model.calibrator
    assert model.training["fitted_vectors"] == 1001
    assert model.training["steps"] == len(seen) == 3 * 60
    assert max(seen[:60]) > max(seen[60:120]) > max(seen[120:])
    first = FlowCalibrator(random_state=0, batch_size=50).fit(next(Shards(whole).shuffled(334)))
    assert fitted.score(expected) >= first.score(expected) - 0.05
    again = fit_shards(Shards(whole), FlowCalibrator(random_state=0, batch_size=50), rows=None).calibrator
    np.testing.assert_array_equal(fitted.transform(expected[:5]), again.transform(expected[:5]))


def test_the_encoder_of_shards_is_loaded_only_when_needed(tmp_path, whole, expected):
    folder = fit_shards(Shards(whole), "whitening").save_pretrained(tmp_path / "model")
    model = BertFlow.from_pretrained(folder, encoder=HashEncoder())
    np.testing.assert_allclose(model.encode(TEXTS), Whitening().fit(expected).transform(expected), atol=1e-5)
    assert model.recipe == "whitening"


@pytest.mark.parametrize("normalize", [False, True])
def test_transformed_shards_are_the_calibrated_rows(tmp_path, whole, expected, normalize):
    model = BertFlow.fit(TEXTS, HashEncoder(), calibrator=Whitening(4))
    transform_shards(Shards(whole), model, tmp_path / "t", normalize=normalize)
    write(tmp_path / "w", model, normalize=normalize)
    wanted = model.calibrator.transform(expected)
    wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True) if normalize else wanted
    np.testing.assert_allclose(Shards(tmp_path / "t").rows(0, 1001), wanted, atol=1e-6)
    np.testing.assert_array_equal(Shards(tmp_path / "t").rows(0, 1001), Shards(tmp_path / "w").rows(0, 1001))
    transform_shards(Shards(whole), model.calibrator, tmp_path / "c", normalize=normalize)
    assert content(tmp_path / "c") == content(tmp_path / "t")
    (tmp_path / "t" / "00003.npy").unlink()
    transform_shards(Shards(whole), model, tmp_path / "t", normalize=normalize)
    assert content(tmp_path / "t") == content(tmp_path / "c")
    with pytest.raises(InputError, match="raw ones are needed"):
        fit_shards(Shards(tmp_path / "t"))
    with pytest.raises(InputError, match="raw ones are needed"):
        transform_shards(Shards(tmp_path / "t"), model, tmp_path / "u")


def test_a_model_writes_what_its_views_give_when_raw_is_asked_for(tmp_path, whole):
    model = BertFlow.fit(TEXTS, HashEncoder(), recipe="whitening")
    write(tmp_path / "v", model, raw=True)
    np.testing.assert_array_equal(Shards(tmp_path / "v").rows(0, 1001), Shards(whole).rows(0, 1001))
    assert Shards(tmp_path / "v").manifest.recipe == "whitening"
    assert fit_shards(Shards(tmp_path / "v")).recipe == "whitening"  # what the shards were written for
    assert fit_shards(Shards(whole)).recipe == "whitening-half"
    with pytest.raises(InputError, match="A fitted model has its recipe"):
        write(tmp_path / "w", model, recipe="sn")
    with pytest.raises(InputError, match=r"was begun with the calibrator none, and now the calibrator Whitening \("):
        write(tmp_path / "v", model)


def test_calibrators_and_folders_that_do_not_fit(tmp_path, whole, expected):
    with pytest.raises(InputError, match="4 dimensions, and the shards have 8"):
        transform_shards(Shards(whole), Whitening().fit(expected[:, :4]), tmp_path / "t")
    with pytest.raises(InputError, match="give another folder"):
        transform_shards(Shards(whole), Whitening().fit(expected), whole)
    with pytest.raises(InputError, match="At least 2 rows"):
        fit_shards(Shards(whole), "flow", rows=1)
    with pytest.raises(InputError, match=r"Unknown recipe 'whitning' .did you mean 'whitening'"):
        fit_shards(Shards(whole), "whitning")
    with pytest.raises(InputError, match=r"holds the views Pooled\(\), and best needs TokenTable.*--recipe best"):
        fit_shards(Shards(whole), "best")


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("bertflow.scale.embedding.TEXTS_AT_ONCE", 500)

    class Cheap(HashEncoder):
        def encode(self, sentences, **options):
            return np.ones((len(sentences), DIM), np.float32) * [[len(text)] for text in sentences]

    def peak(rows):
        path = tmp_path / f"{rows}.txt"
        path.write_text("".join(f"{i}\n" for i in range(rows)))
        tracemalloc.start()
        try:
            write_shards(path, Cheap(), tmp_path / str(rows), shard_rows=5000)
            fit_shards(Shards(tmp_path / str(rows)), "whitening")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(20_000)  # imports and caches
    assert peak(60_000) < 1.2 * peak(20_000)
