"""What comes in, what goes out, and what is refused, in this process."""

import base64
import hashlib

import numpy as np
import pytest

from bertflow.arrays import unit_rows
from bertflow.errors import InputError
from bertflow.serving import Limits, create_app


def embed(client, **fields):
    return client.post("/v1/embeddings", json={"model": "words", **fields})


def vectors(answer):
    assert answer.status_code == 200, answer.text
    return np.array([row["embedding"] for row in answer.json()["data"]], dtype=np.float32)


def test_vectors_are_the_models_of_length_one(client, words):
    texts = ["one text", "another", "one text"]
    answer = embed(client, input=texts)
    np.testing.assert_allclose(vectors(answer), unit_rows(words.encode(texts)), rtol=1e-6)
    assert [row["index"] for row in answer.json()["data"]] == [0, 1, 2]
    assert answer.json()["model"] == "words"
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] == usage["total_tokens"] > 3
    np.testing.assert_array_equal(vectors(embed(client, input="another")), vectors(answer)[1:2])


def test_base64_holds_the_same_float32(client):
    plain = vectors(embed(client, input=["a", "b c"]))
    coded = embed(client, input=["a", "b c"], encoding_format="base64").json()["data"]
    rows = [np.frombuffer(base64.b64decode(row["embedding"]), dtype="<f4") for row in coded]
    np.testing.assert_array_equal(rows, plain)


def test_the_first_dimensions_have_length_one_again(client, words):
    expected = unit_rows(words.encode(["one text"])[:, :3])
    np.testing.assert_allclose(vectors(embed(client, input="one text", dimensions=3)), expected, rtol=1e-6)
    assert vectors(embed(client, input="one text", dimensions=8)).shape == (1, 8)
    refused = embed(client, input="one text", dimensions=9)
    assert refused.status_code == 400
    assert "gives 8 dimensions, not 9" in refused.json()["error"]["message"]


def test_tei_paths(client, words):
    texts = ["one text", "another"]
    raw = words.encode(texts)
    np.testing.assert_allclose(client.post("/embed", json={"inputs": texts}).json(), unit_rows(raw), rtol=1e-6)
    np.testing.assert_allclose(client.post("/embed", json={"inputs": texts, "normalize": False}).json(), raw, rtol=1e-6)
    cosines = client.post("/similarity", json={"inputs": {"source_sentence": texts[0], "sentences": texts}}).json()
    np.testing.assert_allclose(cosines, unit_rows(raw) @ unit_rows(raw)[0], atol=1e-6)
    assert client.post("/embed?model=other", json={"inputs": "a"}).json()["error_type"] == "Validation"


def test_search_finds_in_the_index(client):
    answer = client.post("/v1/search", json={"query": ["a man repairs bicycles", "from the oven bread"], "k": 2}).json()
    assert answer["index"] == "lines"
    assert [found["hits"][0]["text"] for found in answer["data"]] == ["a man repairs bicycles", "bread from the oven"]
    assert [len(found["hits"]) for found in answer["data"]] == [2, 2]
    assert client.get("/v1/indexes").json()["data"] == [{"id": "lines", "object": "index", "texts": 4}]


def test_models_health_metrics_and_the_interface_are_told(client):
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["dim"]) == ("words", "model", 8)
    assert client.get("/v1/models/words").json() == card
    assert client.get("/health").json() == {"status": "ok"}
    embed(client, input=["a", "b"])
    told = client.get("/metrics").text
    for line in ('texts_total{model="words"} 2.0', 'requests_total{path="/v1/embeddings",status="200"} 1.0'):
        assert f"bertflow_{line}" in told
    assert {"/v1/embeddings", "/embed", "/similarity", "/v1/search", "/health", "/metrics", "/v1/models"} <= set(
        client.get("/openapi.json").json()["paths"]
    )


def test_token_ids_are_refused_where_no_file_reads_them(client, monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for ids in ([1, 2], [[1, 2], [3]]):
        refused = embed(client, input=ids)
        assert refused.status_code == 400
        assert "check_embedding_ctx_length=False" in refused.json()["error"]["message"]


@pytest.fixture
def alphabet(monkeypatch, tmp_path):
    """tiktoken with a small alphabet under the name of the large one, whose file only looks as if it were here."""
    tiktoken = pytest.importorskip("tiktoken", reason="needs pip install tiktoken")
    from bertflow.serving.openai import ENCODING_FILE

    (tmp_path / hashlib.sha1(ENCODING_FILE.encode(), usedforsecurity=False).hexdigest()).touch()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    ranks = {bytes([i]): i for i in range(256)}
    made = tiktoken.Encoding("cl100k_base", pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens={"<|end|>": 256})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: made)
    return made


def test_token_ids_are_read_where_the_file_is_here(client, alphabet):
    texts = ["one text", "naïve 文"]
    ids = [alphabet.encode(text) for text in texts]
    np.testing.assert_array_equal(vectors(embed(client, input=ids)), vectors(embed(client, input=texts)))
    np.testing.assert_array_equal(vectors(embed(client, input=ids[0])), vectors(embed(client, input=texts[0])))
    refused = embed(client, input=[999_999])
    assert refused.status_code == 400
    assert "not one of cl100k_base" in refused.json()["error"]["message"]


BAD = {
    "no model": ({"input": "a"}, 400, "'model' is missing"),
    "no input": ({"model": "words"}, 400, "'input' is missing"),
    "empty text": ({"input": "", "model": "words"}, 400, "not empty"),
    "empty list": ({"input": [], "model": "words"}, 400, "not empty"),
    "an empty text among others": ({"input": ["a", ""], "model": "words"}, 400, "not empty"),
    "a number": ({"input": 3, "model": "words"}, 400, "must be a text"),
    "mixed": ({"input": ["a", 3], "model": "words"}, 400, "must be a text"),
    "null": ({"input": None, "model": "words"}, 400, "must be a text"),
    "negative id": ({"input": [-1], "model": "words"}, 400, "must be a text"),
    "another model": ({"input": "a", "model": "gpt"}, 404, "there is: 'words'"),
    "another format": ({"input": "a", "model": "words", "encoding_format": "hex"}, 400, "'float' or 'base64'"),
    "no dimensions": ({"input": "a", "model": "words", "dimensions": 0}, 400, "1 or more"),
    "dimensions as text": ({"input": "a", "model": "words", "dimensions": "3"}, 400, "1 or more"),
    "a list": ([1, 2], 400, "JSON object"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_with_the_right_status(client, name):
    body, status, part = BAD[name]
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == status, answer.text
    message = answer.json()["error"]["message"]
    assert part in message
    assert "\n" not in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"input": ' + b"[" * 100_000, b'{"input": "\\ud800", "model": "words"}', b"NaN"],
)
def test_what_is_no_json_is_refused(client, body):
    answer = client.post("/v1/embeddings", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


def test_unknown_places_and_methods(client):
    assert client.get("/nothing").status_code == 404
    assert client.get("/v1/embeddings").status_code == 405
    assert client.get("/docs").status_code == 404  # it would load scripts from elsewhere


def test_limits_are_413(words):
    from starlette.testclient import TestClient

    client = TestClient(create_app({"words": words}, limits=Limits(texts=2, characters=5, body=200)))
    for body, part in (({"input": ["a", "b", "c"]}, "at most 2"), ({"input": "abcdef"}, "6 characters")):
        refused = embed(client, **body)
        assert refused.status_code == 413
        assert part in refused.json()["error"]["message"]
    for content in (b"x" * 201, iter([b"x" * 150, b"x" * 51])):  # one that says how long it is, and one that does not
        refused = client.post("/v1/embeddings", content=content, headers={"Content-Type": "application/json"})
        assert refused.status_code == 413
        assert "200 bytes" in refused.json()["error"]["message"]
    assert words.batches == []


def test_nothing_to_serve_is_refused():
    with pytest.raises(InputError, match="nothing to serve"):
        create_app({})


def test_a_real_model_is_served(small_model, sentences):
    from starlette.testclient import TestClient

    client = TestClient(create_app({"flow": small_model}))
    answer = client.post("/v1/embeddings", json={"model": "flow", "input": sentences[:5]})
    np.testing.assert_allclose(vectors(answer), small_model.encode(sentences[:5], normalize_embeddings=True), atol=1e-5)
    refused = client.post("/v1/embeddings", json={"model": "flow", "input": "a", "dimensions": 2})
    assert refused.status_code == 400
    assert "in no order" in refused.json()["error"]["message"]
