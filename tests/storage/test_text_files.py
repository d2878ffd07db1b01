import io
import json
import logging
import sys

import pytest

from bertflow.errors import InputError
from bertflow.storage import text_files
from bertflow.storage.text_files import iter_sentences, read_lines, read_sentences, read_table, read_tsv


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_parquet(folder, columns, name="table.parquet"):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table(columns), folder / name)
    return folder / name


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_plain_text_in_every_dress(tmp_path, end, mark):
    path = write(tmp_path, "a.txt", mark + end.join(["Rain fell.", "", "  ", "It stopped."]))
    assert read_sentences(path) == ["Rain fell.", "It stopped."]


def test_blank_lines_are_counted_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "bertflow.storage.text_files"):
        read_sentences(write(tmp_path, "a.txt", "one\n\n\ntwo\n"))
    assert "2 blank" in caplog.text


def test_unusual_separators_stay_inside_a_sentence(tmp_path):
    line = "first\u2028second\x85third\x0bfourth"
    assert read_sentences(write(tmp_path, "a.txt", f"{line}\nnext\n")) == [line, "next"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'id,sentence\n1,"Rain, and ""wind""."\n2,"two\nlines"\n'),
        ("a.jsonl", '{"id": 1, "sentence": "Rain, and \\"wind\\"."}\n\n{"id": 2, "sentence": "two\\nlines"}\n'),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_sentences_of_tables(tmp_path, name, content, mark):
    assert read_sentences(write(tmp_path, name, mark + content)) == ['Rain, and "wind".', "two\nlines"]


def test_quotes_are_ordinary_in_tsv(tmp_path):
    path = write(tmp_path, "a.tsv", 'id\ttext\r\n1\t"Rain" he said\r\n2\t"unclosed\r\n')
    assert read_sentences(path) == ['"Rain" he said', '"unclosed']


def test_sentences_of_parquet(tmp_path):
    path = write_parquet(tmp_path, {"n": list(range(3000)), "text": [f"number {i}" for i in range(3000)]})
    assert read_sentences(path) == [f"number {i}" for i in range(3000)]
    assert [number for number, _ in read_table(path)] == list(range(1, 3001))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffeins\r\n\r\nzwölf\r\n".encode())))
    assert read_sentences("-") == ["eins", "zwölf"]


def test_sentence_column_wins_over_text_and_can_be_named(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tsentence\tbody\nt\ts\tb\n")
    assert read_sentences(path) == ["s"]
    assert read_sentences(path, "body") == ["b"]


@pytest.mark.parametrize("column", [None, "title"])
def test_wrong_column_lists_those_there(tmp_path, column):
    with pytest.raises(InputError, match="headline, body"):
        read_sentences(write(tmp_path, "a.csv", "headline,body\na,b\n"), column)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_a_megabyte_in_one_line(tmp_path, name):
    long = "word " * 200_000 + "end"
    content = {"a.txt": long, "a.jsonl": json.dumps({"text": long})}.get(name, f"text\n{long}")
    assert read_sentences(write(tmp_path, name, content)) == [long]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_empty_files(tmp_path, name, content):
    with pytest.raises(InputError, match=r"a\.\w+ (is empty|holds no sentence)"):
        read_sentences(write(tmp_path, name, content))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_header_without_rows(tmp_path, name):
    with pytest.raises(InputError, match="holds no sentence"):
        read_sentences(write(tmp_path, name, "text\n"))


def test_empty_parquet(tmp_path):
    with pytest.raises(InputError, match="is empty"):
        read_sentences(write_parquet(tmp_path, {"text": []}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"fine\nna\xefve\n", "line 2, is not UTF-8.*0xef"),
        ("a.txt", "naïve".encode("utf-16"), "line 1, is not UTF-8"),
        ("a.tsv", b"text\tn\nfine\t1\nbad\xff\t2\n", "line 3, is not UTF-8"),
        ("a.tsv", "text\tn\nfine\t1\n\nlonely\n", r"line 4, has 1 column\(s\); 2 were expected: text, n"),
        ("a.csv", 'text,n\n"two\nlines",1\na,b,c\n', r"line 4, has 3 column\(s\); 2 were expected"),
        ("a.csv", 'text,n\nfine,1\n"never closed,2\n', "line 3, is not valid CSV"),
        ("a.csv", 'text,n\n"closed"early,2\n', "line 2, is not valid CSV"),
        ("a.tsv", "text\tn\ttext\na\t1\tb\n", "line 1, names column 'text' twice"),
        ("a.csv", "\ufefftext,n,text\r\na,1,b\r\n", "line 1, names column 'text' twice"),
        ("a.jsonl", '{"text": "a"}\n{"text": "a", "text": "b"}\n', "line 2, names column 'text' twice"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2, is not JSON"),
        ("a.jsonl", '["text"]\n', "line 1, is a JSON list"),
        ("a.jsonl", "[" * 100_000, "line 1, is not JSON"),
        ("a.jsonl", '{"text": ' + "9" * 5000 + "}", "line 1,"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2, has None in column 'text'"),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', "line 2, has no column 'text'"),
        ("a.parquet", b"this is not parquet at all", "not a readable parquet file"),
        ("a.docx", b"PK\xff\xfe", "is not UTF-8"),
    ],
)
def test_what_is_malformed_is_named_with_its_line(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match=message) as caught:
        read_sentences(write(tmp_path, name, content))
    assert name in str(caught.value)


def test_duplicate_and_null_in_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_arrays([["a"], ["b"]], names=["text", "text"]), tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="'text' twice"):
        read_sentences(tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="row 2, has None"):
        read_sentences(write_parquet(tmp_path, {"text": ["a", None]}))


def test_missing_file_folder_and_column_of_plain_text(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_sentences(tmp_path / "none.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_sentences(tmp_path / "folder.txt")
    with pytest.raises(InputError, match="no columns"):
        read_sentences(write(tmp_path, "a.txt", "a"), "text")


def test_messages_stay_short(tmp_path):
    path = write(tmp_path, "a.tsv", "x" * 1_000_000 + "\ty\nsome\tcells\n")
    with pytest.raises(InputError) as caught:
        read_sentences(path)
    assert len(str(caught.value)) < 500


def test_rows_carry_their_line_numbers(tmp_path):
    path = write(tmp_path, "a.csv", 'a,b\n"x\ny",1\n\nz,2\n')
    assert list(read_table(path)) == [(2, {"a": "x\ny", "b": "1"}), (5, {"a": "z", "b": "2"})]
    headless = write(tmp_path, "b.tsv", "1\t2\n3\t4\n")
    assert list(read_tsv(headless, ("a", "b"))) == [(1, {"a": "1", "b": "2"}), (2, {"a": "3", "b": "4"})]
    assert list(read_lines(headless)) == [(1, "1\t2"), (2, "3\t4")]


def test_parquet_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"bertflow\[parquet\]"):
        read_sentences(write(tmp_path, "a.parquet", b""))


def test_sentences_come_one_by_one(tmp_path):
    path = write(tmp_path, "a.txt", b"one\n\ntwo\n\xff\n")
    stream = iter_sentences(path)
    assert [next(stream), next(stream), next(stream)] == ["one", "", "two"]
    with pytest.raises(InputError, match="line 4, is not UTF-8"):
        next(stream)


def test_only_the_wanted_column_of_parquet_is_read(tmp_path):
    path = write_parquet(tmp_path, {"text": ["one", "", "two"], "embedding": [[1.0], [2.0], [3.0]]})
    assert list(iter_sentences(path)) == ["one", "", "two"]
    with pytest.raises(InputError, match="it has: text, embedding"):
        list(iter_sentences(path, "body"))


def test_utf_16_without_a_mark_and_binary_files_have_nul_bytes(tmp_path):
    with pytest.raises(InputError, match="line 1, has a NUL byte"):
        read_sentences(write(tmp_path, "a.txt", "rain fell\n".encode("utf-16-le")))
    with pytest.raises(InputError, match=r"line 1, is not UTF-8 \(UTF-16\)"):
        read_sentences(write(tmp_path, "b.txt", "rain fell\n".encode("utf-16")))


def test_half_a_character_is_named(tmp_path):
    with pytest.raises(InputError, match="line 2, has half a character"):
        read_sentences(write(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": "b \\uD83d"}\n'))
    assert read_sentences(write(tmp_path, "b.jsonl", '{"text": "\\ud83d\\ude42"}\n')) == ["🙂"]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1000)
    with pytest.raises(InputError, match=r"line \d, (has more than 1,000 bytes|is not valid CSV)"):
        read_sentences(write(tmp_path, name, '{"text": "' + "word " * 1000 + '"}'))


def test_cells_of_missing_values_are_counted_and_blank(tmp_path, caplog):
    path = write(tmp_path, "a.csv", "n,text\n1,one\n2,nan\n3,\n4,NaN\n5,nan bread\n")
    with caplog.at_level(logging.INFO):
        assert read_sentences(path) == ["one", "nan bread"]
        assert read_sentences(path, keep_blank=True) == ["one", "", "", "", "nan bread"]
    assert "2 cell(s) of column 'text' say only that the value is missing" in caplog.text
    assert "3 blank sentence(s) left out" in caplog.text
    assert read_sentences(write(tmp_path, "a.jsonl", '{"text": "nan"}')) == ["nan"]


def test_numbers_are_no_text(tmp_path):
    for column in ([1.5, 2.0], [None, float("nan")], [["a"], ["b"]]):
        with pytest.raises(InputError, match=r"row 1, has .* in column 'text'; text was expected"):
            read_sentences(write_parquet(tmp_path, {"text": column}))


def test_a_corpus_of_blank_lines(tmp_path):
    with pytest.raises(InputError, match="holds no sentence"):
        read_sentences(write(tmp_path, "a.txt", " \n\t\n\u2003\n"))


def test_a_name_that_is_no_path():
    with pytest.raises(InputError, match="cannot be read"):
        read_sentences("a\0b.txt")
    with pytest.raises(InputError, match="cannot be read"):
        read_sentences("a" * 5000)
