"""The page: findings into one HTML file that needs nothing else and lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bertflow.geometry import ReadableTable, readable_tables
from bertflow.report import prose
from bertflow.report.findings import Findings
from bertflow.report.payload import page_data, safe_json
from bertflow.report.verdict import Origin
from bertflow.version import __version__

CHARTS = "vendor/echarts.common.min.js"


def render(findings: Findings, origin: Origin) -> str:
    """Return the page; the same findings give the same text."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    scripts = [_inlined(CHARTS), _inlined("page.js")]
    return environment.get_template("page.html").render(
        title=_title(findings, origin),
        settings=_settings(findings),
        sentences=origin.sentences,
        version=__version__,
        policy=_policy(scripts),
        style=_inlined("page.css"),
        dark=_inlined("dark.css"),
        scripts=scripts,
        data=Markup(safe_json(page_data(findings))),  # every "<" in it is escaped
        findings=findings,
        prose=prose,
        tables=_appendix(findings),
    )


def _read(name: str) -> str:
    return files("bertflow.report").joinpath(name).read_text(encoding="utf-8")


def _inlined(name: str) -> Markup:
    return Markup(_read(name))  # our own files: nothing in them ends a script or a style, which a test guards


def _policy(scripts: list[Markup]) -> str:
    """Let the browser run these scripts and no others, and load nothing from anywhere."""
    sums = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in sums)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def _title(findings: Findings, origin: Origin) -> str:
    return origin.title or Path(origin.sentences).name


def _settings(findings: Findings) -> list[tuple[str, str]]:
    found = findings.analysis.settings
    rows: list[tuple[str, Any]] = [
        ("encoder", found["encoder"]),
        ("pooling", found["pooling"]),
        ("recipe", f"{found['recipe']}, fitted on {found['fitted_on']}"),
        ("sentences", f"{found['sentences']:,} different ones"),
        ("word counts", found["counts"]),
        ("seed", found["random_state"]),
    ]
    return [(name, str(value)) for name, value in rows if value is not None]


def _appendix(findings: Findings) -> list[ReadableTable]:
    """All measures, but for the sentences that have a section of their own."""
    return [one for one in readable_tables(findings.analysis) if not one.text_last]
