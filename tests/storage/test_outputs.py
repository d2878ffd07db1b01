import json
import os

import pytest

from bertflow.errors import BertflowError
from bertflow.storage.outputs import check_output_file, check_output_folder, is_ours, refuse_same_file


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "data" / "in.jsonl"
    path.parent.mkdir()
    path.write_text('{"text": "a", "label": 1}\n')
    return path


def spellings(path):
    """Other names for one file."""
    link, hard, folder = (path.parent.parent / name for name in ("link.jsonl", "hard.jsonl", "folder"))
    link.symlink_to(path)
    os.link(path, hard)
    folder.symlink_to(path.parent)
    relative = os.path.relpath(path)
    return [path, link, hard, folder / path.name, path.parent / ".." / "data" / path.name, relative]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_is_never_its_input(text, overwrite):
    for output in spellings(text):
        with pytest.raises(BertflowError, match="is the input"):
            check_output_file(output, [None, "mini", "-", text], overwrite=overwrite)
        with pytest.raises(BertflowError, match="is the input"):
            check_output_file(text, [str(output)], overwrite=overwrite)


def test_an_output_never_holds_an_input(text):
    for folder in (text.parent, text.parent.parent, text.parent / ".." / "data"):
        with pytest.raises(BertflowError, match="holds the input"):
            check_output_folder(folder, [text])
    check_output_folder(text.parent / "new", [text])
    check_output_folder(text.parent / "new", [text.parent])


def test_another_file_is_replaced_only_if_the_user_says_so(tmp_path, text):
    other = tmp_path / "vectors.npy"
    check_output_file(other, [text])
    other.write_bytes(b"mine")
    with pytest.raises(BertflowError, match="--overwrite"):
        check_output_file(other, [text])
    check_output_file(other, [text], overwrite=True)
    ours = tmp_path / "vectors.jsonl"
    ours.write_text(json.dumps({"text": "a", "embedding": [1.0] * 5000}) + "\n")
    check_output_file(ours, [text])


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[1]\n", b'{"text": 1}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_table_of_ours(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert is_ours(path) == (content == b"")


def test_a_parquet_of_ours(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["a"], "embedding": [[1.0]]}), tmp_path / "ours.parquet")
    parquet.write_table(arrow.table({"text": ["a"], "label": [1]}), tmp_path / "theirs.parquet")
    (tmp_path / "none.parquet").write_bytes(b"PAR1")
    assert [is_ours(tmp_path / f"{name}.parquet") for name in ("ours", "theirs", "none")] == [True, False, False]


def test_places_where_nothing_can_be_made(tmp_path, text):
    with pytest.raises(BertflowError, match="is a folder"):
        check_output_file(tmp_path)
    with pytest.raises(BertflowError, match="is a file, and a folder"):
        check_output_folder(text)
    with pytest.raises(BertflowError, match="is a file, not a folder"):
        check_output_file(text / "deeper" / "out.npy")
    if os.geteuid():
        text.parent.chmod(0o500)
        with pytest.raises(BertflowError, match="read-only"):
            check_output_file(text.parent / "out.npy")


def test_names_that_are_no_paths_are_no_inputs(tmp_path):
    refuse_same_file(tmp_path / "out", ["a\0b", "x" * 5000, "someone/model", 3, None])
