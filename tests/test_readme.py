"""The first page: its snippet gives the output that it shows, it stays short, and its commands and files exist."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "README.zh-CN.md"]
SNIPPET = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_snippet_prints_what_the_page_shows(capsys):
    code, shown = SNIPPET.search(page("README.md")).groups()
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_both_pages_show_the_same_commands():
    commands = [set(re.findall(r"`(bertflow [a-z-]+)", page(name))) for name in PAGES]
    assert commands[0] == commands[1]


def test_the_page_is_short():
    prose = re.sub(r"^```.*?^```", "", page("README.md"), flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 1000


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_are_alive(name):
    links = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", page(name))
    files = [first or second for first, second in links if not (first or second).startswith("http")]
    assert len(files) > 5
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_command_on_the_page_exists(name):
    from typer.main import get_command

    from bertflow.cli.app import app

    verbs = get_command(app).commands
    for command in re.findall(r"`(bertflow [^`]+)`", page(name)):
        _, verb, *rest = shlex.split(command)
        assert verb in verbs, command
        below = getattr(verbs[verb], "commands", None)
        known = verbs[verb] if below is None else below[rest[0]] if rest and rest[0] in below else None
        if known is None:
            continue
        options = {option for param in known.params for option in (*param.opts, *param.secondary_opts)}
        assert [word for word in rest if word.startswith("-") and word not in options] == [], command
