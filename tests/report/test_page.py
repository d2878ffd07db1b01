"""The page as text: complete, safe, small, the same twice, and made for screen readers too."""

import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from bertflow.report import Origin, report_spaces
from bertflow.report.page import CHARTS, _read, render

TEXT = ("text", "muted", "link", "before", "after", "better", "worse", "unclear", "unproven")
GROUND = ("page", "card", "soft")


class Outline(HTMLParser):
    """What a screen reader finds."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.headings, self.scripts, self.data = [], [], [], ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "script":
            self.scripts.append(dict(attrs))
        self._inside = dict(attrs).get("id", "") if tag == "script" else ""

    def handle_data(self, data):
        if self._inside == "data":
            self.data += data

    def handle_endtag(self, tag):
        self._inside = ""


@pytest.fixture(scope="module")
def outline(page):
    return Outline(page)


def test_nothing_from_elsewhere(page, outline):
    assert len(outline.scripts) == 3, "the data, the charting library once, and our own script"
    assert page.count(_read(CHARTS)) == 1
    assert not [attrs for _, attrs in outline.tags if "src" in attrs or attrs.get("href", "#")[0] != "#"]
    (policy,) = [
        attrs["content"] for tag, attrs in outline.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_texts_survive_unharmed_inside_the_data(outline, evil):
    labels = json.loads(outline.data)["sentences"]["labels"]
    assert set(evil) <= set(labels)
    assert not set("<>&\u2028") & set(outline.data)


def test_tables_escape_what_they_show(page):
    assert "&lt;script&gt;window.hacked" in page
    assert "<script>window" not in page
    assert "A &lt;b&gt;corpus&lt;/b&gt;" in page


def test_landmarks_headings_and_labels(outline):
    tags = Counter(tag for tag, _ in outline.tags)
    assert tags["main"] == tags["nav"] == tags["header"] == tags["footer"] == tags["h1"] == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    referred = [
        attrs[name]
        for _, attrs in outline.tags
        for name in ("aria-labelledby", "aria-describedby", "for")
        if name in attrs
    ]
    referred += [attrs["href"][1:] for tag, attrs in outline.tags if tag == "a"]
    assert set(referred) <= set(ids)
    charts = [attrs for _, attrs in outline.tags if "chart" in attrs.get("class", "").split()]
    assert len(charts) == 9
    assert all(one["role"] == "img" and len(one["aria-label"]) > 40 for one in charts)
    assert tags["section"] == sum("aria-labelledby" in attrs for tag, attrs in outline.tags if tag == "section")


@pytest.mark.parametrize("theme", ["page.css", "dark.css"])
def test_contrast_is_enough_in_both_themes(theme):
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", _read(theme)))
    for ink in TEXT:
        for ground in GROUND:
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def _contrast(one, other):
    """WCAG 2's ratio of relative luminances."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(lights) / min(lights)


@pytest.mark.parametrize("name", [CHARTS, "page.js", "page.css", "dark.css"])
def test_no_inlined_file_ends_its_own_element(name):
    assert not re.search("</(script|style)|<!--", _read(name), re.IGNORECASE)


def test_the_charting_library_is_the_one_named():
    assert hashlib.sha256(_read(CHARTS).encode()).hexdigest() in _read("vendor/README.md")


def test_motion_and_print_are_thought_of():
    style = _read("page.css")
    assert "prefers-reduced-motion" in style
    assert "@media print" in style


def test_twenty_thousand_sentences_stay_below_five_megabytes(large_page):
    assert len(large_page.encode()) < 5_000_000


def test_without_labels_the_page_says_so(unlabelled):
    page = render(unlabelled, Origin("corpus.txt"))
    assert "geometry alone cannot prove" in page
    assert 'id="people"' not in page
    assert "no labels" in page


def test_same_bytes_twice(tiny_spaces, task, tmp_path):
    pytest.importorskip("rapidfuzz", reason="edit distance needs pip install 'bertflow[evaluation]'")
    for name in ("one.html", "two.html"):
        report_spaces(tiny_spaces, tmp_path / name, pairs=task)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
