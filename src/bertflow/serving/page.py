"""The service's own page at /: it loads nothing from elsewhere, and its policy would not let it."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> Response:
    """The page."""
    return Response(_read("serving/page.html"), media_type="text/html; charset=utf-8")


@router.get("/page.css")
async def style() -> Response:
    """The report's style, in both themes, and what this page has besides."""
    light, dark = _read("report/page.css"), _read("report/dark.css")
    return Response(light + themed(dark) + _read("serving/page.css"), media_type="text/css; charset=utf-8")


@router.get("/page.js")
async def script() -> Response:
    """What the page does."""
    return Response(_read("serving/page.js"), media_type="text/javascript; charset=utf-8")


def themed(dark: str) -> str:
    """Return the dark theme's declarations under the system's wish and under the button's."""
    wished = f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
    return f'\n{wished}:root[data-theme="dark"] {{ {dark} }}\n'


def _read(name: str) -> str:
    return files("bertflow").joinpath(name).read_text(encoding="utf-8")
