import copy
import json
import logging
import multiprocessing
import pickle
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertflow.data import mini_folder
from bertflow.encoders.base import Reading
from bertflow.encoders.batching import pad
from bertflow.encoders.choosing import as_encoder
from bertflow.encoders.pooling import POOLINGS, LayerReader, layers_of
from bertflow.encoders.sentence_transformer import SentenceTransformerEncoder
from bertflow.encoders.templates import passes_of
from bertflow.encoders.threads import compute_ahead
from bertflow.encoders.transformer import Encoder
from bertflow.errors import InputError, TruncationWarning
from bertflow.texts import batches_by_length, check_sentences

ODD = {
    "empty": "",
    "space": "   ",
    "whitespace": "\t\n\r  ",
    "emoji": "🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "languages": "Hello, Grüß Gott, привет, مرحبا, שלום, こんにちは, 你好, สวัสดี",
    "control characters": "a\0b\x07c\u200bd\ufeff",
    "one letter": "x",
    "one endless word": "x" * 300,
    "special tokens": "[CLS] [SEP] [PAD] <s> </s>",
}
FAMILIES = ["bert", "distilbert", "roberta", "camembert", "mpnet", "gpt2", "t5"]


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


def direct(encoder: Encoder, sentences: list[str], layers: list[int]) -> np.ndarray:
    """Mean over tokens and layers, one text at a time, without batches, masks or our pooling."""
    rows = []
    for sentence in sentences:
        ids = torch.tensor([encoder.tokenizer(sentence)["input_ids"]])
        with torch.inference_mode():
            states = encoder.model(input_ids=ids, output_hidden_states=True).hidden_states
        rows.append(torch.stack([states[layer][0].mean(0) for layer in layers]).mean(0).numpy())
    return np.stack(rows)


# --- what comes out


def test_mini_gives_float32_rows_in_the_order_of_the_input(mini):
    texts = [
        "A long sentence about a train that was late again this morning.",
        "Tea.",
        "The cat sleeps.",
        "Tea and cake.",
    ]
    vectors = mini.encode(texts)
    assert vectors.shape == (4, 256)
    assert vectors.dtype == np.float32
    for row, text in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(row, mini.encode([text])[0], atol=1e-5)
    np.testing.assert_allclose(mini.encode(texts[::-1]), vectors[::-1], atol=1e-5)


def test_poolings_are_the_layers_that_their_names_say(tiny_bert):
    """Taken from the layers themselves by hooks, not from the list of hidden states whose numbering is the trap."""
    model = transformers.AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    seen: dict[str, torch.Tensor] = {}

    def keep(name):
        return lambda _module, _inputs, output: seen.update({name: output[0] if isinstance(output, tuple) else output})

    layers = model.encoder.layer
    parts = {"embeddings": model.embeddings, "first": layers[0], "last but one": layers[-2], "last": layers[-1]}
    for name, module in parts.items():
        module.register_forward_hook(keep(name))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    with torch.inference_mode():
        model(**tokenizer("the red cat sat on the mat", return_tensors="pt", return_token_type_ids=False))
    tokens = {name: state.reshape(-1, 16) for name, state in seen.items()}
    weights = torch.arange(1.0, len(tokens["last"]) + 1)[:, None]
    expected = {
        "cls": tokens["last"][0],
        "mean": tokens["last"].mean(0),
        "last-token": tokens["last"][-1],
        "weighted-mean": (tokens["last"] * weights).sum(0) / weights.sum(),
        "max": tokens["last"].max(0).values,
        "last2avg": (tokens["last but one"] + tokens["last"]).mean(0) / 2,
        "first-last-avg": (tokens["first"] + tokens["last"]).mean(0) / 2,
        "embedding-last-avg": (tokens["embeddings"] + tokens["last"]).mean(0) / 2,
    }
    assert set(expected) == set(POOLINGS)
    for pooling, vector in expected.items():
        encoder = Encoder(tiny_bert, pooling, device="cpu")
        batch = encoder.encode(
            ["the red cat sat on the mat", "tea", "a slow dog runs and then a blue bird sings on and on"]
        )
        np.testing.assert_allclose(batch[0], vector, atol=1e-5, err_msg=pooling)


def test_default_pooling_is_the_one_of_the_papers_figures(mini):
    assert mini.pooling == "first-last-avg"
    texts = ["A man plays the guitar.", "Rain is expected in the north."]
    np.testing.assert_allclose(mini.encode(texts), direct(mini, texts, [1, -1]), atol=1e-5)


@pytest.mark.parametrize("token_budget", [1, 50, 300, 10**6])
def test_a_vector_does_not_depend_on_its_batch(mini, monkeypatch, token_budget):
    rng = np.random.default_rng(token_budget)
    words = ["rain", "train", "bank", "river", "a", "the", "of", "letter", "quickly", "seven,", "never!", "Paris"]
    companions = [" ".join(rng.choice(words, size=rng.integers(1, 60))) for _ in range(25)]
    texts = ["The bank raised its rates.", "", "Seven ducks crossed the river near the old bank of Paris."]
    alone = np.concatenate([mini.encode([text]) for text in texts])
    monkeypatch.setattr(mini, "token_budget", token_budget)
    together = [*companions, *texts]
    order = rng.permutation(len(together))
    vectors = mini.encode([together[i] for i in order])[np.argsort(order)]
    np.testing.assert_allclose(vectors[-3:], alone, atol=1e-5)


def test_equal_texts_get_equal_vectors_and_are_encoded_once(bert, monkeypatch):
    counted = []
    original = bert._encode_batch
    monkeypatch.setattr(bert, "_encode_batch", lambda *args: counted.extend(args[-1].rows) or original(*args))
    texts = ["tea", "the cat", "tea", "", "the cat", "tea", ""]
    vectors = bert.encode(texts)
    assert len(counted) == 3
    for i, text in enumerate(texts):
        assert np.array_equal(vectors[i], vectors[texts.index(text)])


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_texts_get_finite_vectors(mini, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        alone, among = mini.encode([text]), mini.encode(["A plain sentence.", text, "Another plain one, a bit longer."])
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(among[1], alone[0], atol=1e-5)


def test_empty_text_is_the_vector_of_the_special_tokens(mini):
    special = torch.tensor([[mini.tokenizer.cls_token_id, mini.tokenizer.sep_token_id]])
    with torch.inference_mode():
        states = mini.model(input_ids=special, output_hidden_states=True).hidden_states
    expected = (states[1] + states[-1])[0].mean(0).numpy() / 2
    np.testing.assert_allclose(mini.encode([""])[0], expected, atol=1e-5)
    np.testing.assert_allclose(mini.encode([ODD["whitespace"]])[0], expected, atol=1e-5)


@pytest.mark.parametrize("make", [tuple, np.array, iter, dict.fromkeys], ids=["tuple", "numpy", "generator", "dict"])
def test_any_collection_of_texts_will_do(bert, make):
    texts = ["the cat", "a dog", "tea"]
    np.testing.assert_array_equal(bert.encode(make(texts)), bert.encode(texts))


def test_a_pandas_column_will_do(bert):
    pandas = pytest.importorskip("pandas")
    texts = pandas.Series(["the cat", "a dog", "tea"], index=[7, 8, 9])
    np.testing.assert_array_equal(bert.encode(texts), bert.encode(list(texts)))


def test_progress_bar_only_when_asked(bert, capfd):
    bert.encode(["the cat", "a dog"])
    assert capfd.readouterr() == ("", "")
    bert.encode(["the cat", "a dog"], show_progress_bar=True)
    assert "2/2" in capfd.readouterr().err


# --- long texts


def test_a_text_of_10_000_words_gives_one_warning_that_counts(mini):
    rng = np.random.default_rng(0)
    endless = [" ".join(rng.choice(["river", "late", "train", "seven"], size=10_000)) for _ in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectors = mini.encode(["A short one.", *endless])
    assert [warning.category for warning in caught] == [TruncationWarning]
    assert "2 of 3 texts have more than 128 tokens" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert np.isfinite(vectors).all()


def test_only_the_first_tokens_are_read(tiny_bert):
    encoder = Encoder(tiny_bert, max_length=8, device="cpu")
    whole = "the cat sat on a mat"  # six words and two special tokens: fits exactly, no warning
    expected = encoder.encode([whole])
    with pytest.warns(TruncationWarning, match="1 of 1 texts have more than 8 tokens"):
        cut = encoder.encode([f"{whole} and then tea"])
    np.testing.assert_allclose(cut, expected, atol=1e-6)


@pytest.mark.parametrize("max_length", [2, 0, -1, 65, 10**9, "8", 8.5])
def test_max_length_out_of_bounds_is_refused(tiny_bert, max_length):
    with pytest.raises(InputError, match=r"max_length must lie between 3 and 64.*it was"):
        Encoder(tiny_bert, max_length=max_length)


@pytest.mark.parametrize("max_length", [3, 64])
def test_max_length_at_its_bounds_works(tiny_bert, max_length):
    encoder = Encoder(tiny_bert, max_length=max_length, device="cpu")
    with pytest.warns(TruncationWarning):
        assert np.isfinite(encoder.encode(["the cat " * 100])).all()


def test_default_max_length_is_what_the_model_reads(mini, bert, tiny):
    assert mini.max_length == 128
    assert bert.max_length == 64
    assert Encoder(tiny("t5"), device="cpu").max_length == 512  # T5 has no limit of its own


# --- what is refused


@pytest.mark.parametrize("one", ["one text", b"bytes"])
def test_one_text_instead_of_many(bert, one):
    with pytest.raises(InputError, match=r"Many texts were wanted, as a list; got one\. Write \[text\]\."):
        bert.encode(one)


@pytest.mark.parametrize("nothing", [[], (), iter([])])
def test_no_texts(bert, nothing):
    with pytest.raises(InputError, match="the list is empty"):
        bert.encode(nothing)


@pytest.mark.parametrize(
    ("bad", "kind"), [(None, "NoneType"), (float("nan"), "float"), (b"x", "bytes"), (5, "int"), (["x"], "list")]
)
def test_what_is_not_text_is_named_by_its_place(bert, bad, kind):
    with pytest.raises(InputError, match=rf"Text 2 is .* of type {kind}; every text must be a str"):
        bert.encode(["the cat", "a dog", bad, "tea"])


@pytest.mark.parametrize("bad", [None, 5, 1.5])
def test_what_is_no_collection_is_refused(bad):
    with pytest.raises(InputError, match=f"Many texts were wanted, as a list; got {type(bad).__name__}"):
        check_sentences(bad)


def test_half_a_character_is_named_by_its_place(bert):
    with pytest.raises(InputError, match=r"Text 1, .*lone surrogate"):
        bert.encode(["the cat", "broken \ud83d emoji"])


def test_a_long_text_of_the_wrong_type_does_not_flood_the_message():
    with pytest.raises(InputError) as caught:
        check_sentences([b"x" * 10_000])
    assert len(str(caught.value)) < 200


def test_unknown_pooling():
    with pytest.raises(InputError, match=r"Unknown pooling 'average'.*choose from"):
        Encoder("mini", "average")


# --- folders and hub ids that do not work


@pytest.fixture
def broken(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "broken")


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./a/b/c", "../nowhere/x/y"])
def test_missing_folder(path):
    with pytest.raises(InputError, match=r"There is no folder .*give a folder, a Hugging Face id, or 'mini'"):
        Encoder(path)


@pytest.mark.parametrize("name", ["someone/some-model", "bert-base-nowhere", "~/nowhere", "./nowhere"])
def test_hub_id_while_offline_is_one_clear_sentence(name):
    with pytest.raises(InputError) as caught:
        Encoder(name)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(name) in message
    assert "offline, misspelt or private?" in message
    assert "use 'mini'" in message


def test_offline_means_that_no_connection_is_tried(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("the network was tried")

    monkeypatch.setattr("socket.socket.connect", refuse)
    with pytest.raises(InputError, match="offline"):
        Encoder("someone/some-model")
    with pytest.raises(InputError, match="offline"):
        Encoder("someone/some-model", local_files_only=True)


def test_folder_without_a_model(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(InputError, match=r"The folder .* holds no model.*no config\.json"):
        Encoder(tmp_path)


@pytest.mark.parametrize("damage", ["truncate weights", "no weights", "config", "family", "shapes", "tokenizer"])
def test_damaged_folder_is_one_clear_sentence(broken, damage):
    weights, config = broken / "model.safetensors", broken / "config.json"
    if damage == "truncate weights":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "config":
        config.write_text('{"model_type": "be')
    elif damage == "family":
        config.write_text('{"model_type": "no-such-family"}')
    elif damage == "shapes":
        config.write_text(config.read_text().replace('"intermediate_size": 32', '"intermediate_size": 48'))
    else:
        (broken / "tokenizer.json").write_text("{")
    sentence = "holds no model that transformers can load|is no whole safetensors file|is damaged"
    with pytest.raises(InputError, match=sentence) as caught:
        Encoder(broken)
    assert "\n" not in str(caught.value)
    assert str(broken) in str(caught.value)


def test_folder_without_its_tokenizer(broken):
    """transformers makes up an empty vocabulary then, and every word would be unknown."""
    for file in broken.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match="without its tokenizer"):
        Encoder(broken)


def test_weights_that_transformers_would_draw_at_random_are_named(broken):
    state = load_file(broken / "model.safetensors")
    kept = {name: value for name, value in state.items() if "layer.2." not in name}
    save_file(kept, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"lacks 16 of the model's weights, such as 'encoder\.layer\.2\."):
        Encoder(broken, device="cpu")


# --- loading


def test_float16_checkpoint_is_float32_on_a_cpu(mini, tiny_bert, tmp_path):
    stored = load_file(mini_folder() / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    assert {p.dtype for p in mini.model.parameters()} == {torch.float32}
    half = transformers.AutoModel.from_pretrained(tiny_bert, dtype=torch.float16, add_pooling_layer=False)
    half.save_pretrained(tmp_path / "half")
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "half")
    encoder = Encoder(tmp_path / "half", device="cpu")
    assert {p.dtype for p in encoder.model.parameters()} == {torch.float32}
    asked = Encoder(tmp_path / "half", device="cpu", dtype=torch.bfloat16)
    assert asked.model.dtype == torch.bfloat16
    assert asked.encode(["the cat"]).dtype == np.float32


def test_the_transformer_is_frozen(mini):
    assert not mini.model.training
    assert not any(p.requires_grad for p in mini.model.parameters())


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("verbosity", [logging.DEBUG, logging.WARNING, logging.CRITICAL])
def test_loading_is_quiet_and_leaves_transformers_as_it_was(tmp_path, tiny_bert, capfd, verbosity, bars):
    library = transformers.logging
    before, bars_before = library.get_verbosity(), library.is_progress_bar_enabled()
    records: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = records.append
    logging.getLogger("transformers").addHandler(listener)
    try:
        library.set_verbosity(verbosity)
        (library.enable_progress_bar if bars else library.disable_progress_bar)()
        Encoder("mini", device="cpu")  # its file has a language-model head and no pooler: a long report otherwise
        Encoder(tiny_bert, device="cpu").save(tmp_path / "copy")
        with pytest.raises(InputError):
            Encoder(tmp_path)
        assert library.get_verbosity() == verbosity
        assert library.is_progress_bar_enabled() is bars
    finally:
        logging.getLogger("transformers").removeHandler(listener)
        library.set_verbosity(before)
        (library.enable_progress_bar if bars_before else library.disable_progress_bar)()
    assert capfd.readouterr() == ("", "")
    assert records == []


def test_fingerprint_tells_weights_and_settings_apart(tiny_bert, bert, broken):
    assert Encoder(tiny_bert, device="cpu").fingerprint == bert.fingerprint
    assert Encoder(broken, device="cpu").fingerprint == bert.fingerprint  # the place does not matter
    others = [
        Encoder(tiny_bert, "mean", device="cpu"),
        Encoder(tiny_bert, max_length=10, device="cpu"),
        Encoder(tiny_bert, dtype=torch.bfloat16, device="cpu"),  # which rounds the weights
    ]
    other_weights = Encoder(tiny_bert, device="cpu")
    next(other_weights.model.parameters()).data[0, 0] += 1e-6
    prints = {encoder.fingerprint for encoder in [bert, other_weights, *others]}
    assert len(prints) == 5
    wide = Encoder(tiny_bert, dtype=torch.float64, device="cpu")
    assert wide.fingerprint == bert.fingerprint, "the same weights, only computed with in more digits"


def test_description_is_enough_to_load_it_again(tiny_bert):
    known = json.loads(json.dumps(Encoder(tiny_bert, "max", max_length=12, device="cpu").describe()))
    again = Encoder(known["name"], known["pooling"], max_length=known["max_length"], device="cpu")
    assert again.fingerprint == known["fingerprint"]
    assert again.dim == known["dim"] == 16


# --- other families


@pytest.fixture(scope="module")
def family(tiny):
    loaded = {}
    return lambda kind: loaded.setdefault(kind, Encoder(tiny(kind), device="cpu"))


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_gives_the_mean_of_its_own_states(family, kind):
    encoder = family(kind)
    texts = ["the cat sat on", "tea", "a slow dog runs"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(vectors, direct(encoder, texts, [1, -1]), atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_takes_the_empty_text_and_emoji(family, kind):
    encoder = family(kind)
    texts = ["", "🙂", "the cat sat on it", " "]
    vectors = encoder.encode(texts)
    assert np.isfinite(vectors).all()
    for row, text in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(row, encoder.encode([text])[0], atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_reads_texts_up_to_its_last_position(family, kind):
    encoder = family(kind)
    text = "x " * 1000
    with pytest.warns(TruncationWarning, match=f"more than {encoder.max_length} tokens"):
        vectors = encoder.encode([text, "tea"])
    assert np.isfinite(vectors).all()
    (ids,) = encoder.tokenizer([text], truncation=True, max_length=encoder.max_length)["input_ids"]
    assert len(ids) == encoder.max_length


@pytest.mark.parametrize("kind", ["roberta", "camembert", "mpnet"])
def test_positions_that_start_after_the_padding_id_are_not_counted(tiny, family, kind):
    assert family(kind).max_length == 32
    with pytest.raises(InputError, match="between 3 and 32"):
        Encoder(tiny(kind), max_length=33)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_comes_back_from_disk(family, kind, tmp_path):
    encoder = family(kind)
    encoder.save(tmp_path / "copy")
    again = Encoder(tmp_path / "copy", device="cpu")
    texts = ["the cat sat", "tea", ""]
    np.testing.assert_array_equal(again.encode(texts), encoder.encode(texts))
    assert again.fingerprint == encoder.fingerprint


def test_of_t5_only_the_encoder_runs(tiny, family, monkeypatch):
    alone = transformers.T5EncoderModel.from_pretrained(tiny("t5")).eval()
    encoder = family("t5")
    monkeypatch.setattr(encoder._loaded.decoder, "forward", None)
    ids = torch.tensor([encoder.tokenizer("the cat")["input_ids"]])
    with torch.inference_mode():
        states = alone(input_ids=ids, output_hidden_states=True).hidden_states
    expected = (states[1] + states[-1])[0].mean(0).numpy() / 2
    np.testing.assert_allclose(encoder.encode(["the cat"])[0], expected, atol=1e-5)


# --- batches


@pytest.mark.parametrize("token_budget", [1, 7, 64, 10**6])
def test_batches_hold_every_row_once_within_the_budget(token_budget):
    lengths = np.random.default_rng(0).integers(1, 40, size=200).tolist()
    batches = list(batches_by_length(lengths, token_budget))
    assert sorted(row for batch in batches for row in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= token_budget
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)  # the largest batch first: memory runs out at once or never


def test_batches_of_many_texts_need_no_padding():
    lengths = np.random.default_rng(0).integers(5, 40, size=20_000).tolist()
    batches = list(batches_by_length(lengths, 1024))
    used = sum(len(batch) * lengths[batch[0]] for batch in batches)
    assert used < 1.005 * sum(lengths)
    assert len(batches) < 1.5 * sum(lengths) / 1024


def test_padding_is_on_the_right_and_masked():
    ids, mask = pad([[5, 6, 7], [8], [9, 0]], 1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1], [9, 0, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


# --- threads


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


@pytest.mark.parametrize("pooling", ["mean", "first-last-avg"])
def test_threads_change_no_vector(tiny_bert, sentences, three_threads, pooling):
    encoder = Encoder(tiny_bert, pooling, device="cpu", token_budget=40)
    vectors = encoder.encode(sentences)
    assert torch.get_num_threads() == three_threads
    np.testing.assert_array_equal(encoder.encode(sentences), vectors)
    torch.set_num_threads(1)
    np.testing.assert_allclose(encoder.encode(sentences), vectors, atol=1e-6)


def test_two_callers_may_use_one_encoder_at_a_time(bert, sentences, three_threads, monkeypatch):
    monkeypatch.setattr(bert, "token_budget", 100)
    expected = bert.encode(sentences)
    parts = [slice(0, 200), slice(200, 400)]
    # A fast tokenizer refuses a second caller, as ever; the model is what is shared here.
    batches = [list(bert._batches(sentences[part])) for part in parts]

    def encode(i):
        vectors = np.empty((200, bert.dim), dtype=np.float32)
        with LayerReader(bert.model, bert.pooling) as reader:
            for batch in batches[i]:
                vectors[batch.rows] = bert._encode_batch(reader, passes_of([Reading(bert.pooling)])[0], batch)[0][0]
        return vectors

    with ThreadPoolExecutor(2) as callers:
        together = np.concatenate(list(callers.map(encode, [0, 1])))
    np.testing.assert_allclose(together, expected, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_only_a_few_wait(three_threads, threads):
    torch.set_num_threads(threads)
    made = []
    items = (made.append(i) or i for i in range(100))
    for i, (item, square) in enumerate(compute_ahead(lambda i: i * i, items, torch.device("cpu"))):
        assert (item, square) == (i, i * i)
        assert len(made) <= i + 2 + 3 * threads
    assert made == list(range(100))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_batch_reaches_the_caller_and_leaves_the_encoder_whole(bert, monkeypatch, three_threads, threads):
    torch.set_num_threads(threads)
    expected = bert.encode(["the cat", "tea"])
    with monkeypatch.context() as patch:
        patch.setattr(bert, "token_budget", 1)
        patch.setattr(bert.model.embeddings, "forward", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bert.encode(["the cat", "a slow dog", "tea"])
    assert torch.get_num_threads() == threads
    assert not any(module._forward_pre_hooks for module in bert.model.modules())
    np.testing.assert_array_equal(bert.encode(["the cat", "tea"]), expected)


# --- hidden states and other processes


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Bert", "Albert", "Longformer", "Mamba", "CLIPText"])
def test_layers_are_those_that_transformers_would_give(kind, layers, pooling):
    """ALBERT runs one layer many times; the last three have hidden states that are not their layers' inputs."""
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": layers, "pad_token_id": 0, "eos_token_id": 2}
    if kind != "Mamba":
        sizes |= {"num_attention_heads": 2, "intermediate_size": 32, "initializer_range": 0.5}
    if kind == "Longformer":
        sizes |= {"attention_window": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes)).eval()
    ids = torch.arange(3, 27).reshape(4, 6)
    with torch.inference_mode(), LayerReader(model, pooling) as reader:
        states = reader(ids, torch.ones_like(ids))
        expected = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states
    for i in layers_of(pooling):
        torch.testing.assert_close(states[i], expected[i])


def test_all_views_in_one_pass_are_those_of_an_encoder_each(tiny):
    views = [Reading(pooling, words_only) for pooling in POOLINGS for words_only in (False, True)]
    texts = ["the cat sat", "tea, green", "a dog", "?!", "", "tea, green"]
    for kind in ("bert", "roberta", "gpt2"):  # two layers, so that layer 1 is also layer −2
        together = Encoder(tiny(kind), device="cpu").encode_views(texts, views)
        for view, vectors in zip(views, together, strict=True):
            alone = Encoder(tiny(kind), view.pooling, words_only=view.words_only, device="cpu").encode(texts)
            np.testing.assert_allclose(vectors, alone, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_only_the_layers_of_the_pooling_are_kept(tiny_bert, pooling):
    encoder = Encoder(tiny_bert, pooling, device="cpu")
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode(), LayerReader(encoder.model, pooling) as reader:
        assert set(reader(ids, torch.ones_like(ids))) == set(layers_of(pooling))
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in encoder.model.modules())


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_encoder_that_was_used_can_be_pickled_and_copied(tiny, kind):
    encoder, texts = Encoder(tiny(kind), device="cpu"), ["the cat sat", "tea", ""]
    expected = encoder.encode(texts)
    for again in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):  # noqa: S301
        np.testing.assert_array_equal(again.encode(texts), expected)


def test_an_encoder_that_was_used_works_in_another_process(tiny_bert, sentences):
    encoder = Encoder(tiny_bert, device="cpu")
    expected = encoder.encode(sentences[:20])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        vectors = pool.apply(encoder.encode, (sentences[:20],))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


# --- sentence-transformers and other encoders


@pytest.fixture(scope="module")
def sentence_transformer(tiny_bert):
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(tiny_bert), device="cpu")


def test_sentence_transformer_gives_its_own_vectors(sentence_transformer, tiny_bert):
    texts = ["the cat sat", "", "tea", "the cat sat"]
    encoder = as_encoder(sentence_transformer)
    assert isinstance(encoder, SentenceTransformerEncoder)
    assert encoder.dim == 16
    assert encoder.name == str(tiny_bert)
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, sentence_transformer.encode(texts), atol=1e-6)
    np.testing.assert_allclose(vectors, Encoder(tiny_bert, "mean", device="cpu").encode(texts), atol=1e-5)


def test_sentence_transformer_fingerprint_tells_settings_apart(sentence_transformer, tiny_bert, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    def build(*modules):
        return SentenceTransformerEncoder(SentenceTransformer(modules=list(modules), device="cpu"))

    original = SentenceTransformerEncoder(sentence_transformer)
    same = build(Transformer(str(tiny_bert)), Pooling(16, pooling_mode="mean"))
    assert same.fingerprint == original.fingerprint
    short = build(Transformer(str(tiny_bert)), Pooling(16, pooling_mode="mean"))
    short.model.max_seq_length = 5
    others = [
        short,
        build(Transformer(str(tiny_bert)), Pooling(16, pooling_mode="cls")),
        build(Transformer(str(tiny_bert)), Pooling(16, pooling_mode="mean"), Normalize()),
    ]
    assert len({encoder.fingerprint for encoder in [original, *others]}) == 4
    for i, encoder in enumerate([original, *others]):
        encoder.save(tmp_path / str(i))
        again = SentenceTransformerEncoder(SentenceTransformer(str(tmp_path / str(i)), device="cpu"))
        assert again.fingerprint == encoder.fingerprint


def test_sentence_transformer_refuses_what_is_not_text(sentence_transformer):
    with pytest.raises(InputError, match="Text 1 is None"):
        as_encoder(sentence_transformer).encode(["the cat", None])


def test_encoders_pass_through(bert):
    assert as_encoder(bert) is bert


def test_settings_belong_to_the_encoder_that_is_given(bert):
    with pytest.raises(InputError, match=r"Encoder brings its own pooling and settings; leave out pooling\."):
        as_encoder(bert, "mean")
    with pytest.raises(InputError, match=r"leave out max_length\."):
        as_encoder(bert, max_length=5)


@pytest.mark.parametrize("thing", [None, 5, object(), {"name": "mini"}])
def test_what_is_no_encoder_is_refused(thing):
    with pytest.raises(InputError, match=f"got {type(thing).__name__}"):
        as_encoder(thing)


def test_unknown_device():
    with pytest.raises(InputError, match="is not a device"):
        Encoder("mini", device="gpu")


def test_words_only_pools_no_punctuation_and_no_special_tokens(tiny):
    encoder = Encoder(tiny("roberta"), "mean", words_only=True, device="cpu")
    with LayerReader(encoder.model, "mean") as reader, torch.inference_mode():
        ids = torch.tensor([encoder.tokenizer("ab,c!")["input_ids"]])
        states = reader(ids, torch.ones_like(ids))[-1][0]
    kept = [i for i, token in enumerate(encoder.tokenizer.convert_ids_to_tokens(ids[0])) if token in "abc"]
    assert len(kept) == 3
    np.testing.assert_allclose(encoder.encode(["ab,c!"])[0], states[kept].mean(0).numpy(), atol=1e-5)


def test_words_only_pools_all_of_a_text_without_words(tiny):
    plain, words = (Encoder(tiny("roberta"), "mean", words_only=only, device="cpu") for only in (False, True))
    np.testing.assert_allclose(words.encode(["?!", ""]), plain.encode(["?!", ""]), atol=1e-6)
    assert plain.fingerprint != words.fingerprint
