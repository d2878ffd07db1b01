"""Models and search indexes over HTTP, for the clients that people have: OpenAI's, LangChain's, Hugging Face's.

    from bertflow import BertFlow
    from bertflow.serving import create_app

    app = create_app({"my-model": BertFlow.from_pretrained("my-model")})  # for any ASGI server

`bertflow serve my-model` does the same and runs it. The service sees a model only through ``encode`` and ``dim``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertflow.errors import require
from bertflow.serving.limits import Keys, Limits, read_keys

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Keys", "Limits", "create_app", "read_keys"]


def create_app(
    models: Mapping[str, Any],
    indexes: Mapping[str, Any] | None = None,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    batching: bool = True,
    hosts: Collection[str] | None = None,
    texts: Sequence[str] = (),
) -> FastAPI:
    """Return an ASGI application that serves models and indexes by name.

    Args:
        models: Anything with ``encode`` and ``dim``, by name; the first one answers where none is named.
        indexes: Anything with ``search`` and a length, such as ``bertflow.integrations.faiss.SearchIndex``, by name.
        keys: Those that clients must show one of; none means that everybody may ask.
        limits: On texts, characters, bytes, the queue.
        batching: Compute what several clients ask together; without, each request by itself.
        hosts: Names by which the service may be called, or None for any: see ``bertflow.serving.guard``.
        texts: Some of the kind that is compared: they tell each model how often unrelated texts reach a cosine.
    """
    require("fastapi", "serve")
    require("prometheus_client", "serve")
    from bertflow.serving.app import make_app
    from bertflow.serving.served import Catalogue

    catalogue = Catalogue(models, indexes or {}, limits, batching)
    if texts:
        for served in catalogue.models.values():
            served.learn(texts)
    return make_app(catalogue, keys or Keys(), hosts)
