"""Tables that compare the paper's figures with ours: paper | ours | difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bertflow.evaluation.formats import Figure, Figures

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        name: As the paper calls it; where ours differs in kind, ours says so.
        paper: The published figures, None where the paper has none.
        ours: What was measured, None where it could not be.
        deviation: Standard deviation over seeds, where there were several.
    """

    name: str
    paper: Values
    ours: Values
    deviation: Values = ()


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper with our figures beside it.

    Args:
        name: Such as ``"Table 5"``.
        title: What it shows.
        columns: Names of the figures.
        rows: The lines.
        settings: Encoder, seeds and whatever else the figures depend on; printed with them.
        notes: What a reader must know, a sentence each.
        decimals: Digits after the point.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decimals: int = 2

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return asdict(self)

    def cells(self) -> Iterator[list[str]]:
        """Yield each line as text: the name, then "paper | ours | difference" for each column."""
        for row in self.rows:
            deviations = row.deviation or (None,) * len(row.ours)
            yield [
                row.name,
                *(
                    self._cell(paper, ours, deviation)
                    for paper, ours, deviation in zip(row.paper, row.ours, deviations, strict=True)
                ),
            ]

    def _cell(self, paper: float | None, ours: float | None, deviation: float | None) -> str:
        measured = self._figure(ours) if deviation is None else f"{self._figure(ours)}±{self._figure(deviation)}"
        gap = "–" if paper is None or ours is None else f"{ours - paper:+.{self.decimals}f}"
        return f"{self._figure(paper)} | {measured} | {gap}"

    def _figure(self, value: float | None) -> str:
        return "–" if value is None else f"{value:.{self.decimals}f}"

    def to(self, form: str) -> str:
        """Return the table as ``"markdown"``, ``"latex"``, ``"csv"`` or ``"json"``."""
        return self.to_markdown() if form == "markdown" else self.figures().to(form)

    def figures(self) -> Figures:
        """Return three columns (paper, ours, difference) for each of ours, to be written in any format."""
        columns = [f"{column}: {what}" for column in self.columns for what in ("paper", "ours", "Δ")]
        rows = {}
        for row in self.rows:
            cells: list[Figure | None] = []
            deviations = row.deviation or (None,) * len(row.ours)
            for paper, ours, deviation in zip(row.paper, row.ours, deviations, strict=True):
                gap = None if paper is None or ours is None else ours - paper
                cells += [self._as_figure(paper), self._as_figure(ours, deviation), self._as_figure(gap)]
            rows[row.name] = cells
        return Figures(self.name, columns, rows, self.to_dict())

    def _as_figure(self, value: float | None, deviation: float | None = None) -> Figure | None:
        return None if value is None else Figure(value, deviation, decimals=self.decimals)

    def to_markdown(self) -> str:
        """Return the table as Markdown, three columns (paper, ours, difference) for each figure."""
        head = ["", *(f"{column}: {what}" for column in self.columns for what in ("paper", "ours", "Δ"))]
        lines = [f"### {self.name}: {self.title}", ""]
        lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        lines += [f"| {' | '.join(cells)} |" for cells in self.cells()]
        lines += ["", "Settings: " + ", ".join(f"{key} {value}" for key, value in self.settings.items()) + "."]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"
