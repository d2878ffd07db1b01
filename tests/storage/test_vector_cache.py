import logging
import multiprocessing
import os
import zlib

import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.evaluation import CachedEncoder


class Counting:
    """A deterministic encoder that remembers what it was asked."""

    def __init__(self, dimensions=4):
        self.dimensions, self.asked = dimensions, []

    def __call__(self, sentences):
        self.asked += sentences
        seeds = [zlib.crc32(sentence.encode("utf-8", "surrogatepass")) for sentence in sentences]
        return np.stack([np.random.default_rng(seed).normal(size=self.dimensions) for seed in seeds]).astype(np.float32)


SENTENCES = ["b", "a", "b", "", "ä", "c" * 10_000, "a"]


def shards(cached):
    return sorted(cached.folder.glob("*.keys.npy"))


def test_each_distinct_sentence_is_encoded_once_in_order(tmp_path):
    encoder = Counting()
    cached = CachedEncoder(encoder, "one", tmp_path)
    vectors = cached.encode(SENTENCES)
    np.testing.assert_array_equal(vectors, Counting()(SENTENCES))
    assert vectors.dtype == np.float32
    assert encoder.asked == list(dict.fromkeys(SENTENCES))
    np.testing.assert_array_equal(cached.encode(SENTENCES[::-1]), vectors[::-1])
    assert len(encoder.asked) == len(set(SENTENCES))


def test_a_later_process_finds_everything(tmp_path):
    first = CachedEncoder(Counting(), "one", tmp_path).encode(SENTENCES)
    encoder = Counting()
    later = CachedEncoder(encoder, "one", tmp_path)
    np.testing.assert_array_equal(later.encode(SENTENCES), first)
    assert encoder.asked == []
    later.encode(["new", *SENTENCES])
    assert encoder.asked == ["new"]


def test_fingerprints_do_not_meet(tmp_path):
    one, two = CachedEncoder(Counting(4), "one", tmp_path), CachedEncoder(Counting(6), "two", tmp_path)
    assert one.encode(["a"]).shape == (1, 4)
    assert two.encode(["a"]).shape == (1, 6)
    assert one.folder != two.folder


def test_pieces_are_written_as_they_come(tmp_path):
    calls = []

    def breaks_in_the_third_piece(sentences):
        calls.append(sentences)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return Counting()(sentences)

    texts = [str(i) for i in range(7)]
    with pytest.raises(RuntimeError):
        CachedEncoder(breaks_in_the_third_piece, "one", tmp_path, shard_size=2).encode(texts)
    encoder = Counting()
    CachedEncoder(encoder, "one", tmp_path).encode(texts)
    assert encoder.asked == texts[4:]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def cut_in_header(path):
    path.write_bytes(path.read_bytes()[:20])


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(b"not an array at all, but long enough to be taken for one by a careless reader" * 9)


def pickled(path):
    np.save(path.open("wb"), np.array([{"a": 1}], dtype=object), allow_pickle=True)


def zipped(path):
    np.savez(path.open("wb"), a=np.zeros(3))


def misshapen(path):
    np.save(path.open("wb"), np.float32(3))


def one_bit_of_its_values(path):
    content = bytearray(path.read_bytes())
    content[130] ^= 4
    path.write_bytes(content)


HARMS = [one_bit_of_its_values, truncate, cut_in_header, empty, garbage, pickled, zipped, misshapen, os.remove]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("which", ["vectors", "keys"])
def test_a_damaged_shard_is_encoded_again(tmp_path, harm, which, caplog):
    cached = CachedEncoder(Counting(), "one", tmp_path)
    expected = cached.encode(["a", "b"])
    cached.encode(["c"])
    keys = next(path for path in shards(cached) if len(np.load(path)) == 1 + 2)
    harm(keys if which == "keys" else keys.with_name(keys.name.replace(".keys", "")))
    encoder = Counting()
    with caplog.at_level(logging.WARNING):
        again = CachedEncoder(encoder, "one", tmp_path).encode(["a", "b", "c"])
    np.testing.assert_array_equal(again[:2], expected)
    assert encoder.asked == ["a", "b"]
    assert ("damaged or" in caplog.text) or (harm is os.remove and which == "keys")


def test_an_altered_shard_in_a_running_process_is_encoded_again(tmp_path):
    """A process that has only listed a shard verifies it when it first uses it."""
    writer, reader = CachedEncoder(Counting(), "one", tmp_path), CachedEncoder(encoder := Counting(), "one", tmp_path)
    expected = writer.encode(["a", "b"])
    reader.encode(["c"])
    path = next(path for path in shards(writer) if len(np.load(path)) == 1 + 2)
    one_bit_of_its_values(path.with_name(path.name.replace(".keys", "")))
    np.testing.assert_array_equal(reader.encode(["b", "a", "c"])[[1, 0]], expected)
    assert encoder.asked == ["c", "b", "a"]


def test_shards_without_a_checksum_are_left_alone(tmp_path):
    """As earlier versions wrote them."""
    cached = CachedEncoder(encoder := Counting(), "one", tmp_path)
    cached.folder.mkdir(parents=True)
    np.save(cached.folder / "00000-old.npy", np.zeros((1, 4), np.float32))
    np.save(cached.folder / "00000-old.keys.npy", np.frombuffer(cached._key("a"), np.uint8).reshape(1, 32))
    np.testing.assert_array_equal(cached.encode(["a"]), Counting()(["a"]))
    assert encoder.asked == ["a"]


def test_unfinished_files_are_no_shards(tmp_path):
    cached = CachedEncoder(Counting(), "one", tmp_path)
    cached.folder.mkdir(parents=True)
    np.save(cached.folder / "00000-lonely.npy", np.zeros((2, 4), np.float32))
    (cached.folder / ".00001-x.keys.npy.saving-y.npy").write_bytes(b"half")
    np.testing.assert_array_equal(cached.encode(["a"]), Counting()(["a"]))


def test_no_temporary_files_stay_behind(tmp_path):
    cached = CachedEncoder(Counting(), "one", tmp_path)
    cached.encode(["a"])
    names = [path.name for path in cached.folder.iterdir()]
    assert len(names) == 2
    assert not any(name.startswith(".") for name in names)


def test_an_unwritable_folder_only_costs_the_memory(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    encoder = Counting()
    cached = CachedEncoder(encoder, "one", blocked)
    np.testing.assert_array_equal(cached.encode(["a", "b"]), Counting()(["a", "b"]))
    cached.encode(["b", "a"])
    assert encoder.asked == ["a", "b"]
    assert "not kept" in caplog.text


def test_a_fingerprint_that_lies_is_found_out(tmp_path):
    CachedEncoder(Counting(4), "same", tmp_path).encode(["a"])
    with pytest.raises(InputError, match="4 and 6 dimensions"):
        CachedEncoder(Counting(6), "same", tmp_path).encode(["a", "b"])


def _work(folder, start):
    CachedEncoder(Counting(), "one", folder, shard_size=3).encode([str(i) for i in range(start, start + 40)])


def test_processes_share_a_folder(tmp_path):
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    workers = [context.Process(target=_work, args=(tmp_path, start)) for start in (0, 20, 0)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    encoder = Counting()
    texts = [str(i) for i in range(60)]
    np.testing.assert_array_equal(CachedEncoder(encoder, "one", tmp_path).encode(texts), Counting()(texts))
    assert encoder.asked == []


def test_what_others_write_meanwhile_is_seen(tmp_path):
    encoder = Counting()
    cached = CachedEncoder(encoder, "one", tmp_path)
    cached.encode(["a"])
    CachedEncoder(Counting(), "one", tmp_path).encode(["b"])
    cached.encode(["a", "b"])
    assert encoder.asked == ["a"]


def test_default_folder_follows_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path))
    assert CachedEncoder(Counting(), "one").folder.is_relative_to(tmp_path / "embeddings")


@pytest.mark.parametrize(
    ("encode", "sentences", "message"),
    [
        (Counting(), [], "one or more sentences"),
        (Counting(), "a single string", "list of one or more"),
        (Counting(), ["a", None], "must be text; None came"),
        (lambda sentences: np.zeros((1, 3)), ["a", "b"], "2 sentences gave 1 embeddings"),
        (lambda sentences: np.full((len(sentences), 3), np.nan), ["a"], "NaN"),
    ],
)
def test_wrong_input_and_output(tmp_path, encode, sentences, message):
    with pytest.raises(InputError, match=message):
        CachedEncoder(encode, "one", tmp_path).encode(sentences)
    assert not list(tmp_path.rglob("*.npy"))


def test_lone_surrogates_have_a_key(tmp_path):
    assert CachedEncoder(Counting(), "one", tmp_path).encode(["\ud800"]).shape == (1, 4)
