"""Tables of figures as text: Markdown, LaTeX with booktabs, CSV and JSON, for papers and pages."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORMATS = ("markdown", "latex", "csv", "json")
_ESCAPED = {mark: f"\\{mark}" for mark in "&%$#_{}"}
_LATEX = str.maketrans(_ESCAPED | {"~": r"\textasciitilde{}", "^": r"\^{}", "Δ": r"$\Delta$", "–": "--"})


@dataclass(frozen=True)
class Figure:
    """One figure of a table.

    Args:
        value: ×100, as everywhere.
        deviation: Standard deviation over seeds, where there were several.
        low: Lower end of its interval, where there is one.
        high: Upper end.
        p_value: Of the difference to the first row's kind, where it was tested.
        best: Whether it is the best of its column, and shown in bold.
        metric: What it is.
        decimals: Digits after the point.
    """

    value: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    best: bool = False
    metric: str = ""
    decimals: int = 2

    @property
    def significant(self) -> bool:
        """Whether the difference that was tested has p < 0.05."""
        return self.p_value is not None and self.p_value < 0.05

    def __str__(self) -> str:
        return self.rounded(self.value) + ("" if self.deviation is None else f"±{self.rounded(self.deviation)}")

    def rounded(self, number: float) -> str:
        """Return a number with as many decimals as the figure has."""
        return f"{number:.{self.decimals}f}"

    @property
    def interval(self) -> str:
        """The interval as text, or nothing."""
        return "" if self.low is None or self.high is None else f"{self.low:.1f}–{self.high:.1f}"


@dataclass(frozen=True)
class Figures:
    """A table of figures.

    Args:
        corner: What the rows are: ``"recipe"``.
        columns: Names of the columns.
        rows: For each row's name its figures, one a column; None where there is none.
        content: The same and whatever else is known, as JSON values.
    """

    corner: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Figure | None]]
    content: Mapping[str, Any]

    def to(self, form: str) -> str:
        """Return the table in one of ``FORMATS``, ending in a line feed."""
        return _WRITERS[form](self)

    def to_markdown(self) -> str:
        """Return a pipe table: mean ± sd over seeds, the interval in parentheses, the best in bold."""
        lines = [f"| {self.corner} | {' | '.join(self.columns)} |", f"|---{'|---:' * len(self.columns)}|"]
        lines += [f"| {name} | {' | '.join(map(_markdown, figures))} |" for name, figures in self.rows.items()]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        r"""Return a ``tabular`` for a paper that has ``\usepackage{booktabs}``: mean ± sd, the best in bold, * for p < 0.05."""
        head = " & ".join(name.translate(_LATEX) for name in (self.corner, *self.columns))
        body = [
            f"{' & '.join([name.translate(_LATEX), *map(_latex, figures)])} \\\\" for name, figures in self.rows.items()
        ]
        start = f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}"
        return (
            "\n".join([start, "\\toprule", f"{head} \\\\", "\\midrule", *body, "\\bottomrule", "\\end{tabular}"]) + "\n"
        )

    def to_csv(self) -> str:
        """Return one line a figure: row, column, metric, value, sd, low, high, p."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((self.corner, "task", "metric", "value", "sd", "low", "high", "p_value"))
        for name, figures in self.rows.items():
            for column, f in zip(self.columns, figures, strict=True):
                if f is not None:
                    numbers = (f.value, f.deviation, f.low, f.high, f.p_value)
                    shown = ["" if number is None else f"{number:.4f}" for number in numbers]
                    writer.writerow((name, column, f.metric, *shown))
        return text.getvalue()

    def to_json(self) -> str:
        """Return everything that is known."""
        return json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"


def _markdown(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    text = f"**{figure}**" if figure.best else str(figure)
    return text + (f" ({figure.interval})" if figure.interval else "")


def _latex(figure: Figure | None) -> str:
    if figure is None:
        return "--"
    value = figure.rounded(figure.value)
    text = f"\\textbf{{{value}}}" if figure.best else value
    text += "$^{*}$" if figure.significant else ""
    return text + ("" if figure.deviation is None else f" {{\\small$\\pm${figure.rounded(figure.deviation)}}}")


_WRITERS: dict[str, Callable[[Figures], str]] = {
    "markdown": Figures.to_markdown,
    "latex": Figures.to_latex,
    "csv": Figures.to_csv,
    "json": Figures.to_json,
}
