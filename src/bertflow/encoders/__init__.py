"""Encoders: text in, vectors out, by a frozen language model and views of it. Importing the room registers every view."""

from bertflow.encoders.base import TextEncoder, View
from bertflow.encoders.token_table import TokenTable
from bertflow.encoders.views import Pooled

__all__ = ["Pooled", "TextEncoder", "TokenTable", "View"]
