"""What comes in and goes out, as /openapi.json shows it. Fields that a client's library sends besides are not looked at."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole(value: object) -> object:
    """In JSON 3.0 is as whole as 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)  # stands last, as the bounds before it would not reach the schema
Text = Annotated[str, Field(min_length=1)]
Token = Annotated[int, Field(ge=0, lt=1 << 31), Whole]
Texts = Annotated[list[Text], Field(min_length=1)]
Tokens = Annotated[list[Token], Field(min_length=1)]
MOST_HITS = 100
Query = Annotated[str, Field(pattern=r"[^\s\x1c-\x1f\x85]")]  # what Python calls blank is blank everywhere


class StrictRequest(BaseModel):
    """A number is a number, a text is a text; other fields are not looked at."""

    model_config = ConfigDict(strict=True)


class EmbeddingsRequest(StrictRequest):
    """As OpenAI's."""

    input: Text | Texts | Tokens | Annotated[list[Tokens], Field(min_length=1)]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1), Whole] | None = None


class Embedding(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens of a request; estimated where the model cannot count them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """As OpenAI's."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ModelCard(BaseModel):
    """A model, as OpenAI lists it, with its dimensions."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dim: int


class Models(BaseModel):
    """As OpenAI's."""

    object: Literal["list"]
    data: list[ModelCard]


class EmbedRequest(StrictRequest):
    """As text-embeddings-inference's. Longer texts than the model reads are always cut."""

    inputs: Text | Texts
    normalize: bool = True
    truncate: bool | None = None
    dimensions: Annotated[int, Field(ge=1), Whole] | None = None


class SimilarityInputs(StrictRequest):
    """One text and those to compare it with."""

    source_sentence: Text
    sentences: Texts


class SimilarityRequest(StrictRequest):
    """As text-embeddings-inference's."""

    inputs: SimilarityInputs


class SearchRequest(StrictRequest):
    """A query or several, in an index by name or in the first one."""

    query: Query | Annotated[list[Query], Field(min_length=1)]
    index: str | None = None
    k: Annotated[int, Field(ge=1, le=MOST_HITS), Whole] = 10


class Hit(BaseModel):
    """A text that was found; ``row`` is its place in the texts that were indexed, from 0."""

    rank: int
    cosine: float
    text: str
    row: int
    copies: int


class Found(BaseModel):
    """The hits of one query."""

    query: str
    hits: list[Hit]


class SearchAnswer(BaseModel):
    """What each query found."""

    index: str
    data: list[Found]


class IndexCard(BaseModel):
    """An index and how many texts it holds."""

    id: str
    object: Literal["index"]
    texts: int


class Indexes(BaseModel):
    """All indexes."""

    object: Literal["list"]
    data: list[IndexCard]


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]


class Error(BaseModel):
    """One sentence: what came, what was wanted, what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """As OpenAI's."""

    error: Error


class TeiErrorAnswer(BaseModel):
    """As text-embeddings-inference's."""

    error: str
    error_type: str


ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}}
TEI_ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": TeiErrorAnswer}, "5XX": {"model": TeiErrorAnswer}}
