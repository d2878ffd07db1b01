"""What mkdocs asks for while it builds: pages made from the code, and the result pages from `results/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\]\(\.\./(?!results/)([^)]+)\)")  # links to files that are no pages


def on_files(files: Files, config: Any) -> Files:
    """Add the results and the API, which is every public name."""
    for page in sorted((ROOT / "results").glob("*.md")):
        files.append(File.generated(config, f"results/{page.name}", content=page.read_text(encoding="utf-8")))
    for picture in sorted((ROOT / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    files.append(File.generated(config, "api.md", content=_api()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fill in the table of recipes; links that leave the site become plain text."""
    markdown = markdown.replace("<!-- recipes -->", _recipes()) if page.file.src_uri == "recipes.md" else markdown
    if page.file.src_uri.startswith("results/"):
        return re.sub(
            r"\]\((?!http)(?:\.\./)?(docs/)?([\w.-]+\.md)([^)]*)\)", r"](../\2\3)" if False else r"]", markdown
        )
    markdown = re.sub(r"\]\(\.\./results/", "](results/", markdown)
    return OUTSIDE.sub("]", markdown)


def _recipes() -> str:
    from bertflow.recipes import recipes

    rows = "\n".join(f"| `{name}` | {text} |" for name, text in recipes().items())
    return f"| recipe | what it is |\n|---|---|\n{rows}"


def _api() -> str:
    import bertflow

    names = [name for name in sorted(bertflow._HOME, key=str.lower) if name != "POOLINGS"]
    text = "# API\n\nEvery public name; `from bertflow import …`.\n"
    return text + "".join(f"\n::: {bertflow._HOME[name]}.{name}\n" for name in names)
