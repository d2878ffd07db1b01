"""Encoders: text in, vectors out, by a frozen language model and views of it. Importing the room registers every view."""

from bertflow.encoders.base import TextEncoder, View
from bertflow.encoders.prompts import Contrast, Echo, Prompt
from bertflow.encoders.token_table import TokenTable
from bertflow.encoders.views import Pooled
from bertflow.encoders.word_averages import Sif, Usif, ZipfianWhitening

__all__ = [
    "Contrast",
    "Echo",
    "Pooled",
    "Prompt",
    "Sif",
    "TextEncoder",
    "TokenTable",
    "Usif",
    "View",
    "ZipfianWhitening",
]
