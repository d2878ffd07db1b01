"""Properties that hypothesis tries to break: any text, any array, any command line."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertflow import BertflowError, RemoveTopComponents, Standardize, Whitening
from bertflow.arrays import as_matrix
from bertflow.cli.output import visible
from bertflow.storage.checksums import check_seal, sealed
from bertflow.storage.text_files import read_sentences

from .commands import bertflow

EXAMPLES = 200 if int(os.environ.get("FORTRESS_CASES", "0")) >= 100 else 25
calm = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
anything = st.text(st.characters(), max_size=80)  # every code point, half characters too
characters = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"), min_size=1, max_size=60
)


@calm
@given(st.lists(anything, min_size=1, max_size=5))
@example(["", " ", "\0", "\ud800", "\u202e", "a" * 5000, "é" * 300])
def test_any_text_has_a_vector_or_is_refused(small_model, texts):
    try:
        vectors = small_model.encode(texts)
    except BertflowError:
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            return
        raise
    assert vectors.shape == (len(texts), small_model.dim)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(small_model.encode(texts[::-1])[::-1], vectors, atol=1e-4)


@calm
@given(st.lists(characters.filter(str.strip), min_size=1, max_size=6))
def test_texts_come_back_from_every_file(tmp_path, texts):
    (tmp_path / "a.txt").write_text("\n".join(texts), encoding="utf-8", newline="")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    quoted = "".join('"' + text.replace('"', '""') + '"\n' for text in texts)
    (tmp_path / "a.csv").write_text("text\n" + quoted, encoding="utf-8", newline="")
    assert read_sentences(tmp_path / "a.txt") == texts
    assert read_sentences(tmp_path / "a.jsonl") == texts
    missing = {"nan", "NaN", "NAN", "NULL", "<NA>", "#N/A"}
    if kept := [text for text in texts if text not in missing]:
        assert read_sentences(tmp_path / "a.csv") == kept


@calm
@given(st.binary(max_size=200), st.sampled_from(["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet"]))
def test_any_bytes_are_text_or_are_refused(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    try:
        assert all(isinstance(text, str) for text in read_sentences(tmp_path / name))
    except BertflowError as error:
        if name not in str(error):
            raise


KINDS = [np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_, np.complex64, ">f4", "U3", object]


def _scaled(x, scale, turned):
    """Return floats scaled, into infinity too, and in the other memory order."""
    if x.dtype.kind != "f":
        return x
    with np.errstate(all="ignore"):
        return np.asfortranarray(x * scale) if turned else (x * scale)[::-1]


def _matrices():
    shapes = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=7)
    kinds = st.sampled_from(KINDS)
    drawn = kinds.flatmap(lambda kind: arrays.arrays(kind, shapes, elements=st.none() if kind is object else None))
    return st.builds(_scaled, drawn, st.sampled_from([1, 1e-30, 1e30, 1e200]), st.booleans())


@calm
@given(_matrices())
def test_any_array_is_a_finite_matrix_or_is_refused(x):
    try:
        with np.errstate(all="ignore"):
            matrix = as_matrix(x, "Vectors")
    except BertflowError:
        return
    assert matrix.ndim == 2
    assert np.isfinite(matrix).all()


@calm
@given(_matrices(), st.sampled_from([Whitening, Standardize, RemoveTopComponents]))
def test_any_array_is_calibrated_to_finite_vectors_or_is_refused(x, kind):
    try:
        with np.errstate(all="ignore"):
            calibrator = kind().fit(x)
            vectors = calibrator.transform(x)
    except (ValueError, TypeError):  # scikit-learn's own too: estimators keep its customs
        return
    assert np.isfinite(vectors).all()
    assert vectors.shape == (len(x), calibrator._n_features_out)


@calm
@given(anything)
def test_nothing_that_is_shown_commands_a_terminal(text):
    assert not set(visible(text)) & {
        chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066)
    }
    visible(text).encode()


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)


@calm
@given(st.dictionaries(anything, trees, max_size=4), anything, trees)
def test_a_seal_holds_over_json_and_breaks_at_every_change(content, name, value):
    kept = json.loads(json.dumps(sealed(content)))
    check_seal(kept, "config.json", "copy it again")
    changed = kept | {name: value}
    if json.dumps(changed, sort_keys=True) != json.dumps(kept, sort_keys=True):
        with pytest.raises(BertflowError, match="was changed by another program"):
            check_seal(changed, "config.json", "copy it again")


VERBS = ["fit", "embed", "transform", "similarity", "info", "report", "evaluate", "index", "export", "nonsense"]
WORDS = [
    "TEXT",
    "OUT",
    "mini",
    "-",
    "nan",
    "-1",
    "0",
    "1e999",
    "99999999999999999999",
    "",
    "\x1b[2J",
    "a\nb",
    "../x",
    "best",
]
FLAGS = [
    "-o",
    "-e",
    "-m",
    "-p",
    "-r",
    "--recipe",
    "--json",
    "-q",
    "--raw",
    "--seed",
    "--device",
    "--shard-rows",
    "--column",
]
FLAGS += [
    "--rank",
    "--world-size",
    "--rows",
    "--normalize",
    "--dtype",
    "--k",
    "--precision",
    "--help",
    "--no-such-option",
]


@settings(parent=calm, max_examples=EXAMPLES // 2)
@given(st.sampled_from(VERBS), st.lists(st.sampled_from(WORDS + FLAGS), max_size=7))
def test_any_command_line_ends_in_an_exit_code_and_a_sentence(tmp_path, verb, rest):
    (tmp_path / "texts.txt").write_text("a cat\na dog\ntea\n" * 3)
    places = {"TEXT": tmp_path / "texts.txt", "OUT": tmp_path / "out"}
    ended = bertflow(verb, *(places.get(word, word) for word in rest))
    assert ended.code in (0, 1, 2)
    assert ended.code == 0 or ended.err.strip()
    assert (tmp_path / "texts.txt").read_text() == "a cat\na dog\ntea\n" * 3
    assert "\x1b[2J" not in ended.out + ended.err
