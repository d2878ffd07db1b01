"""What every command shares: its common options, and how results, progress and errors are shown.

Results go to standard output, everything else to standard error, so that ``--json`` can be piped.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bars and no remarks.")]
EncoderName = Annotated[
    str, typer.Option("--encoder", "-e", help="`mini` (ships inside), a Hugging Face id, or a local folder.")
]
PoolingName = Annotated[
    str | None,
    typer.Option(
        "--pooling",
        "-p",
        help="`cls`, `mean`, `max`, `last2avg`, `first-last-avg` (default: the paper's) or `embedding-last-avg`.",
    ),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, for papers and pages.")]
Seed = Annotated[int, typer.Option(help="Random seed: the same seed gives the same result.")]
Device = Annotated[str | None, typer.Option(help="`cuda`, `mps` or `cpu`; default: the fastest that is present.")]

console = Console()
# What a terminal acts on instead of showing it: control characters, and marks that turn the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def start(quiet: bool, *, many_fits: bool = False) -> bool:
    """Set up logging and warnings for a command; return whether progress bars are wanted.

    Args:
        quiet: No remarks, no bars.
        many_fits: The command fits many calibrators to compare them, so their own remarks are hidden.
    """
    level = logging.ERROR if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("bertflow").setLevel(level)
    for part in ("flows", "calibrators", "model"):
        logging.getLogger(f"bertflow.{part}").setLevel(max(level, logging.WARNING) if many_fits else logging.NOTSET)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports each retry; our error says it once
    warnings.simplefilter("ignore" if quiet else "default")
    warnings.showwarning = _show_warning
    return not quiet and sys.stderr.isatty()


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Show the sentence, not the source line."""
    kind = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    sys.stderr.write(f"{kind}{visible(str(message))}\n")


def visible(text: str) -> str:
    """Return a text with each control character written as its number, so that none of it controls the terminal."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1] if found[0] < "\xa0" else f"\\u{ord(found[0]):04x}", text)


class _Visible(logging.Formatter):
    """Log lines too quote texts and file names, so they are made visible."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return visible(super().format(record))


def print_json(result: Any) -> None:
    """Print a result for machines."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], *, text_last: bool = False) -> None:
    """Print a table: the first column to the left, figures to the right; ``text_last`` puts the last to the left too."""
    grid = Table(title=visible(title or "") or None, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        text = i == 0 or (text_last and i == len(columns) - 1)
        grid.add_column(visible(column), justify="left" if text else "right", overflow="fold")
    for row in rows:
        grid.add_row(*map(visible, row))
    console.print(grid)


def say(text: str = "") -> None:
    """Print a line; rich markup such as [bold] is understood. The terminal wraps it, so that a command can be copied."""
    console.print(visible(text), highlight=False, soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Write what is wrong to standard error and exit."""
    sys.stderr.write(f"bertflow: {visible(message)}\n")
    raise SystemExit(code)
