"""Findings of a small corpus with sentences that try to break the page, and a browser to open it in."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from bertflow.evaluation import PairSet, PairTask
from bertflow.geometry import make_spaces
from bertflow.report import Origin, gather
from bertflow.report.maps import LEVELS, SpaceMap
from bertflow.report.page import render

EVIL = (
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 2'>",
    "<!-- <script> never closed",
    'a "quoted" sentence\u2028with a strange line end & an ampersand',
    "{{ 7 * 7 }} ${window.hacked = 3}",
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def evil():
    """Sentences that would run, or break the page, were they not escaped."""
    return EVIL


@pytest.fixture(scope="session")
def tiny_spaces(small_model, sentences):
    """A tiny random BERT with its flow, 16 dimensions."""
    return make_spaces([*sentences, *EVIL], model=small_model)


@pytest.fixture(scope="session")
def task(sentences):
    """Pairs that share their beginning, all the more the higher their score, and one that would break the page."""
    rng = np.random.default_rng(0)
    first, second, gold = [EVIL[0]], [EVIL[1]], [2.0]
    for text in sentences[:60]:
        words, score = text.split(), int(rng.integers(6))
        kept = words[: round(len(words) * score / 5)]
        first.append(text)
        second.append(" ".join([*kept, *rng.permutation(words)[: len(words) - len(kept)]]))
        gold.append(float(score))
    return PairTask("own", "spearman", {"all": PairSet(first, second, np.array(gold))}, [])


def random_map(n, labels, seed=0):
    rng = np.random.default_rng(seed)
    return SpaceMap(
        labels=labels,
        before=rng.normal([6, 0], 1, size=(n, 2)),
        after=rng.normal(size=(n, 2)) * 4,
        levels=rng.integers(LEVELS, size=n),
        values=rng.normal(size=n) * 30,
        shade="density",
        low="sparse",
        high="dense",
        total=n,
    )


@pytest.fixture(scope="session")
def findings(tiny_spaces, task):
    pytest.importorskip("rapidfuzz", reason="edit distance needs pip install 'bertflow[evaluation]'")
    return gather(tiny_spaces, pairs=task)


@pytest.fixture(scope="session")
def unlabelled(tiny_spaces):
    return gather(tiny_spaces)


@pytest.fixture(scope="session")
def page(findings):
    return render(findings, Origin(title="A <b>corpus</b>"))


@pytest.fixture(scope="session")
def large_page(findings):
    """Twenty thousand sentences of three hundred characters, ten thousand words."""
    rng = np.random.default_rng(1)
    words = np.array(["many", "different", "sentences", "with", "ünïcödé", "words", "stand", "here", "again", "<b>"])
    texts = [f"{i} " + " ".join(words[rng.integers(10, size=50)]) for i in range(20_000)]
    assert np.mean([len(text) for text in texts]) > 280
    many = replace(findings, sentences=random_map(20_000, texts))
    tokens = [f"word{i}" for i in range(10_000)]
    many = replace(many, words=replace(findings.words, map=random_map(10_000, tokens)))
    return render(many, Origin())


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium that writes down what it loads and what goes wrong."""
    pytest.importorskip("selenium", reason="needs pip install selenium, which is among bertflow's dev tools")
    from selenium import webdriver

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser here: install chromium and chromium-driver (Debian's names)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1300,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    running.set_script_timeout(20)
    yield running
    running.quit()
