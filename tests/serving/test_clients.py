"""The clients that people have, against a running service: nothing here is pretended."""

import threading

import numpy as np
import pytest

from bertflow.arrays import unit_rows
from bertflow.serving import Keys, Limits, create_app
from tests.serving.conftest import Words, running

TEXTS = ["one text", "naïve 文", "one text", "another one that is longer"]


def expected(texts=TEXTS):
    return unit_rows(Words().encode(texts))


@pytest.fixture
def openai(address):
    """OpenAI's client, which asks for base64 by itself."""
    library = pytest.importorskip("openai", reason="needs pip install openai")
    with library.OpenAI(base_url=f"{address}/v1", api_key="not-needed", max_retries=0) as client:
        yield client


def test_openai(openai):
    answer = openai.embeddings.create(model="words", input=TEXTS)
    np.testing.assert_allclose([row.embedding for row in answer.data], expected(), atol=1e-6)
    assert answer.usage.prompt_tokens > 4
    floats = openai.embeddings.create(model="words", input=TEXTS[0], encoding_format="float")
    np.testing.assert_allclose(floats.data[0].embedding, expected()[0], atol=1e-6)
    assert len(openai.embeddings.create(model="words", input="a", dimensions=3).data[0].embedding) == 3
    assert [model.id for model in openai.models.list()] == ["words", "loose"]
    assert openai.models.retrieve("loose").id == "loose"


def test_openai_understands_refusals(openai):
    import openai as library

    with pytest.raises(library.NotFoundError, match="there is: 'words', 'loose'") as unknown:
        openai.embeddings.create(model="gpt", input="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(library.BadRequestError, match="in no order") as unordered:
        openai.embeddings.create(model="loose", input="a", dimensions=3)
    assert unordered.value.param == "dimensions"
    with pytest.raises(library.BadRequestError, match="check_embedding_ctx_length=False"):
        openai.embeddings.create(model="words", input=[[1, 2]])


def test_openai_sends_its_key_and_comes_again_when_told():
    library = pytest.importorskip("openai", reason="needs pip install openai")
    app = create_app({"words": Words(seconds=0.2)}, keys=Keys(["a-secret-key"]), limits=Limits(texts=1, queue=1))
    with running(app) as address:
        stranger = library.OpenAI(base_url=f"{address}/v1", api_key="another-key", max_retries=0)
        with stranger, pytest.raises(library.AuthenticationError, match="A key is needed"):
            stranger.embeddings.create(model="words", input="a")
        with library.OpenAI(base_url=f"{address}/v1", api_key="a-secret-key", max_retries=8) as client:
            lengths = []

            def ask():  # there is room for one: the others are told 429 and wait, as Retry-After says
                lengths.append(len(client.embeddings.create(model="words", input="a").data))

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert lengths == [1, 1, 1]
            with pytest.raises(library.APIStatusError, match="at most 1") as many:
                client.with_options(max_retries=0).embeddings.create(model="words", input=["a", "b"])
            assert many.value.status_code == 413


def test_a_large_body_is_refused_so_that_the_client_hears_it():
    library = pytest.importorskip("openai", reason="needs pip install openai")
    with (
        running(create_app({"words": Words()}, limits=Limits(body=1000))) as address,
        library.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client,
    ):
        with pytest.raises(library.APIStatusError, match="1000 bytes") as refused:
            client.embeddings.create(model="words", input="word " * 2_000_000)
        assert refused.value.status_code == 413
        assert client.embeddings.create(model="words", input="a").data


def test_langchain(address):
    library = pytest.importorskip("langchain_openai", reason="needs pip install langchain-openai")
    made = library.OpenAIEmbeddings(
        model="words", base_url=f"{address}/v1", api_key="not-needed", check_embedding_ctx_length=False
    )
    np.testing.assert_allclose(made.embed_documents(TEXTS), expected(), atol=1e-6)
    np.testing.assert_allclose(made.embed_query(TEXTS[0]), expected()[0], atol=1e-6)


def test_langchain_that_sends_token_ids_is_told_what_to_do(address, monkeypatch):
    library = pytest.importorskip("langchain_openai", reason="needs pip install langchain-openai")
    import openai
    import tiktoken

    alphabet = tiktoken.Encoding(
        "small", pat_str=r"[\s\S]", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: alphabet)  # it would ask the network
    made = library.OpenAIEmbeddings(model="words", base_url=f"{address}/v1", api_key="not-needed")
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        made.embed_documents(TEXTS)


@pytest.fixture
def online(monkeypatch):
    """The tests are offline, and huggingface_hub then asks nobody, this machine included."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_huggingface_hub(address, online):
    from huggingface_hub import InferenceClient

    client = InferenceClient(model=f"{address}/embed")
    np.testing.assert_allclose(client.feature_extraction(TEXTS), expected(), atol=1e-6)
    np.testing.assert_allclose(client.feature_extraction(TEXTS[0]), expected()[:1], atol=1e-6)
    raw = client.feature_extraction(TEXTS, normalize=False, truncate=True)
    np.testing.assert_allclose(raw, Words().encode(TEXTS), rtol=1e-5)
    cosines = InferenceClient(model=f"{address}/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    np.testing.assert_allclose(cosines, expected() @ expected()[0], atol=1e-6)


def test_huggingface_hub_understands_refusals(address, online):
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    with pytest.raises(HfHubHTTPError, match="must be a text"):
        InferenceClient(model=f"{address}/embed").feature_extraction("")


def test_many_clients_at_once_get_their_own_vectors():
    httpx = pytest.importorskip("httpx", reason="needs pip install httpx")
    model = Words(seconds=0.01)
    texts = [f"text number {i}" for i in range(64)]
    found = {}
    with running(create_app({"words": model})) as address, httpx.Client() as client:

        def ask(text):
            answer = client.post(f"{address}/v1/embeddings", json={"model": "words", "input": text})
            found[text] = answer.json()["data"][0]["embedding"]

        threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    np.testing.assert_allclose([found[text] for text in texts], expected(texts), atol=1e-6)
    assert len(model.batches) < 40  # they were computed together
