import json
import warnings

import numpy as np
import pytest
import torch
import transformers

from bertflow import BertFlow, Encoder, Part, Whitening
from bertflow.encoders.base import Deferred, Reading, Template, View, encode_views
from bertflow.encoders.pooling import pool
from bertflow.encoders.prompts import Contrast, Echo, Prompt, make_template
from bertflow.encoders.views import Pooled
from bertflow.errors import InputError, TruncationWarning

TEXTS = ["the cat sat", "a dog", "", "tea, sings", "a [MASK] b"]
PROMPTS = {"bert": 'the "{text}" a {mask} and.', "mpnet": "{text}:{mask}", "gpt2": 'the "{text}" in:"'}
TWICE = "a {text}: {text}"
VIEWS = {
    "prompt": lambda kind: Prompt(PROMPTS[kind]),
    "two prompts": lambda kind: Prompt([PROMPTS[kind], PROMPTS[kind].replace("{text}", "a {text}")], layer=-2),
    "contrast": lambda kind: Contrast(PROMPTS[kind], PROMPTS[kind].replace("{text}", "no {text}"), strength=0.7),
    "echo": lambda kind: Echo(TWICE),
}
every = pytest.mark.parametrize("view", VIEWS)
families = pytest.mark.parametrize("kind", PROMPTS)


@pytest.fixture
def load(tiny):
    return lambda kind, **options: Encoder(tiny(kind), device="cpu", **options)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@torch.inference_mode()
def states(folder, text=None, ids=None, layer=-1, **options):
    """Hidden states (tokens, d), by transformers alone."""
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModel.from_pretrained(folder),
    )
    ids = torch.tensor([tokenizer(text)["input_ids"] if ids is None else ids])
    return ids[0].tolist(), model(ids, output_hidden_states=True, **options).hidden_states[layer][0].numpy()


@pytest.mark.parametrize("text", ["the cat", "tea", "a slow green bird runs"])
def test_a_masked_model_is_read_at_the_mask_less_the_templates_bias(tiny, load, text):
    folder, mask = tiny("bert"), 4
    ids, whole = states(folder, PROMPTS["bert"].format(text=text, mask="[MASK]"))
    place, words = ids.index(mask), len(text.split())
    kept = [i for i in range(len(ids)) if not 3 <= i < 3 + words]  # [CLS] the " TEXT " a [MASK] and . [SEP]
    blank_ids, blank = states(folder, ids=[ids[i] for i in kept], position_ids=torch.tensor([kept]))
    expected = whole[place] - blank[blank_ids.index(mask)]
    found = Prompt(PROMPTS["bert"]).fit(load("bert"), ()).encode([text])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    biased = Prompt(PROMPTS["bert"], subtract_bias=False).fit(load("bert"), ()).encode([text])[0]
    np.testing.assert_allclose(biased, whole[place], atol=1e-5)


@pytest.mark.parametrize("layer", [None, -2, 0])
@pytest.mark.parametrize("prompt", [PROMPTS["gpt2"], "a: {text}"])
def test_a_decoder_is_read_at_the_last_token(tiny, load, prompt, layer):
    _, whole = states(tiny("gpt2"), prompt.format(text="a cat"), layer=-1 if layer is None else layer)
    found = Prompt(prompt, layer=layer).fit(load("gpt2"), ()).encode(["a cat"])[0]
    np.testing.assert_allclose(found, whole[-1], atol=1e-5)


def test_echo_is_the_mean_over_the_second_copy(tiny, load):
    _, whole = states(tiny("gpt2"), TWICE.format(text="a cat").replace("{text}", "a cat"))
    found = Echo(TWICE).fit(load("gpt2"), ()).encode(["a cat"])[0]
    np.testing.assert_allclose(found, whole[-len(" a cat") :].mean(0), atol=1e-5)


@every
@families
def test_one_text_is_as_in_a_batch(load, view, kind):
    fitted = VIEWS[view](kind).fit(load(kind), ())
    together, alone = fitted.encode(TEXTS), np.concatenate([fitted.encode([text]) for text in TEXTS])
    assert together.shape == (len(TEXTS), fitted.dim)
    np.testing.assert_allclose(unit(together), unit(alone), atol=1e-5)


def test_an_empty_text_has_a_vector_of_its_own(load):
    view = Prompt(PROMPTS["bert"]).fit(load("bert"), ())
    assert np.linalg.norm(view.encode([""])) > 0.1  # with the bias subtracted, nothing but rounding would be left


@every
@families
def test_the_tokenizers_side_of_padding_changes_no_vector(load, view, kind):
    right, left = load(kind), load(kind)
    left.tokenizer.padding_side = "left"
    np.testing.assert_array_equal(*(VIEWS[view](kind).fit(encoder, ()).encode(TEXTS) for encoder in (right, left)))


@pytest.mark.parametrize("pooling", ["last-token", "weighted-mean", "mean", "max"])
def test_states_padded_on_the_left_are_pooled_alike(pooling):
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randn(length, 4, generator=generator) for length in (5, 1, 3)]
    padded = {}
    for side in ("left", "right"):
        whole, mask = torch.full((3, 5, 4), float("nan")), torch.zeros(3, 5, dtype=torch.long)
        for row, states_of_text in enumerate(texts):
            place = slice(5 - len(states_of_text), 5) if side == "left" else slice(len(states_of_text))
            whole[row, place], mask[row, place] = states_of_text, 1
        padded[side] = pool([whole], mask, pooling, layers=(0,))
    torch.testing.assert_close(padded["left"], padded["right"])
    if pooling == "last-token":
        torch.testing.assert_close(padded["left"], torch.stack([text[-1] for text in texts]))


def test_the_last_token_of_words_is_a_word(load):
    encoder = load("roberta")
    words, plain = (Reading("last-token", words_only) for words_only in (True, False))
    of_words, of_all = encoder.encode_views(["tea", "tea..."], [words, plain])
    assert not np.allclose(of_words, of_all)
    tokens = encoder.tokenizer("tea...")["input_ids"]
    _, expected = states(encoder.name, ids=tokens)
    np.testing.assert_allclose(of_words[1], expected[3], atol=1e-5)  # <s> t e a . . . </s>


@families
def test_several_prompts_are_averaged_and_a_contrast_is_a_difference(load, kind):
    encoder, (one, other) = load(kind), (PROMPTS[kind], PROMPTS[kind].replace("{text}", "no {text}"))
    first, second = (Prompt(prompt).fit(encoder, ()).encode(TEXTS) for prompt in (one, other))
    np.testing.assert_allclose(Prompt([one, other]).fit(encoder, ()).encode(TEXTS), (first + second) / 2, atol=1e-5)
    contrast = Contrast(one, other, strength=0.3).fit(encoder, ())
    np.testing.assert_allclose(contrast.encode(TEXTS), first - 0.3 * second, atol=1e-5)


def test_views_of_one_template_share_a_pass(load, monkeypatch):
    encoder, prompt = load("gpt2"), PROMPTS["gpt2"]
    views = [
        Prompt(prompt),
        Prompt(prompt, layer=-2),
        Contrast(prompt, "no {text}:"),
        Pooled("mean"),
        Pooled("last-token"),
    ]
    alone = [view.fit(encoder, ()).encode(TEXTS[:1]) for view in views]
    calls, forward = [], encoder.model.forward
    monkeypatch.setattr(encoder.model, "forward", lambda **inputs: calls.append(1) or forward(**inputs))
    together = encode_views(views, TEXTS[:1])
    assert len(calls) == 3  # the prompt, the one against it, and the text as it is
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@families
def test_the_text_is_cut_and_never_the_template(load, kind):
    encoder = load(kind, max_length=24)
    view = Prompt([PROMPTS[kind], PROMPTS[kind].replace("{text}", "a{text}")]).fit(encoder, ())
    template = view.reading.templates[0]
    lone = Prompt(PROMPTS[kind]).fit(encoder, ())
    fits = 24 - template.length
    shortened = ("x " * 40)[: 2 * fits if kind == "bert" else fits]  # the others have a token a character
    with pytest.warns(TruncationWarning, match=f"1 of 2 texts have more than {fits} tokens, .* beside the prompt"):
        cut = lone.encode(["x " * 40, "tea"])
    np.testing.assert_allclose(cut[0], lone.encode([shortened])[0], atol=1e-5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        view.encode(["x " * 40, "tea"])
    assert [warning.category for warning in caught] == [TruncationWarning]


def test_echo_refuses_what_it_cannot_read_twice(load):
    view = Echo(TWICE).fit(load("gpt2"), ())
    assert view.encode(["x" * 25]).shape == (1, 16)
    with pytest.raises(InputError, match="too long to be read 2 times"):
        view.encode(["tea", "x" * 40])


@pytest.mark.parametrize(
    ("kind", "view", "message"),
    [
        ("t5", Prompt(), "neither a masked language model .* nor a decoder"),
        ("t5", Echo(), "neither a masked language model"),
        ("bert", Prompt("means {mask}"), r"has \{text\} once"),
        ("bert", Prompt("{text} and {text} {mask}"), r"has \{text\} once"),
        ("bert", Prompt("{text} means"), "has 0 masks"),
        ("bert", Prompt("{mask} {text} [MASK]"), "has 2 masks"),
        ("bert", Prompt([]), "the list is empty"),
        ("bert", Prompt(["{text} {mask}", 3]), r"has \{text\} once"),
        ("gpt2", Prompt("{text} {mask}"), "is a decoder, which has no masks"),
        ("gpt2", Echo("{text}"), r"has \{text\} 2 times"),
        ("gpt2", Prompt(layer=3), "layer 3 does not exist"),
        ("gpt2", Prompt(layer=-4), "layer -4 does not exist"),
        ("gpt2", Prompt(layer="last"), "layer 'last' does not exist"),
    ],
)
def test_what_does_not_fit_together_is_refused(load, kind, view, message):
    with pytest.raises(InputError, match=message):
        view.fit(load(kind), ())


def test_other_encoders_are_refused(load):
    class Given:
        name = "mine"

    with pytest.raises(InputError, match="needs a transformer"):
        Prompt().fit(Given(), ())
    encoder = load("bert")
    encoder.tokenizer.mask_token = None
    with pytest.raises(InputError, match="with a mask token"):
        Prompt().fit(encoder, ())
    with pytest.raises(InputError, match="no text fits in"):
        Prompt("x" * 70 + "{text}").fit(load("gpt2"), ()).encode(["tea"])


def test_a_template_is_cut_into_tokens_as_if_the_text_stood_in_it(load):
    encoder = load("gpt2")
    for prompt in ("a: {text}", 'so "{text}" is', "{text}"):
        template = make_template(encoder, prompt)
        rows, _ = encoder._tokenize(["a cat"], template)
        assert rows[0] == encoder.tokenizer(prompt.format(text="a cat"))["input_ids"]
    bert = load("bert")
    rows, _ = bert._tokenize(["a cat"], make_template(bert, "the {text}, {mask}."))
    assert rows[0] == bert.tokenizer("the a cat, [MASK].")["input_ids"]


def test_a_chat_template_is_never_applied(load):
    encoder = load("gpt2")
    plain = Prompt("{text}:").fit(encoder, ()).encode(["tea"])
    encoder.tokenizer.chat_template = "{% for message in messages %}user: {{ message.content }}{% endfor %}"
    np.testing.assert_array_equal(Prompt("{text}:").fit(encoder, ()).encode(["tea"]), plain)


def test_a_cached_reading_is_known_by_all_that_changes_its_vectors(load):
    encoder = load("gpt2")
    views = [
        Prompt("{text}:"),
        Prompt("{text};"),
        Prompt("{text}:", layer=-2),
        Echo(TWICE),
        Contrast("{text}:", "{text};"),
    ]
    names = {repr(view.fit(encoder, ()).reading) for view in views}
    assert len(names) == len(views)
    assert repr(Reading("mean")) == "Reading(pooling='mean', words_only=False)"  # as in caches of earlier versions
    assert len({view.fingerprint for view in views}) == len(views)


@every
@families
def test_described_and_loaded_again(load, tmp_path, view, kind):
    encoder = load(kind)
    fitted = VIEWS[view](kind).fit(encoder, ())
    described = json.loads(json.dumps(fitted.describe()))
    again = View.load(tmp_path, described, encoder)
    assert again.fingerprint == fitted.fingerprint
    np.testing.assert_array_equal(again.encode(TEXTS), fitted.encode(TEXTS))
    later = View.load(tmp_path, described, Deferred(encoder.describe(), lambda: encoder))
    assert later.dim == fitted.dim
    np.testing.assert_array_equal(later.encode(TEXTS), fitted.encode(TEXTS))


def test_from_fit_to_load(tiny, sentences, tmp_path):
    view = Prompt("{text}:", layer=-2)
    model = BertFlow.fit(sentences, tiny("gpt2"), parts=[Part(view, Whitening(alpha=0.5))], device="cpu")
    model.save_pretrained(tmp_path / "model")
    again = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert again.parts[0].view.template == "{text}:"


def test_mini_has_a_mask_of_its_own(mini):
    vectors = Prompt().fit(mini, ()).encode(["One sentence.", "And another."])
    assert vectors.shape == (2, 256)
    assert np.isfinite(vectors).all()


def test_wrapping():
    template = Template(((1, 2), (3,), ()), place=(1, 0))
    assert (template.copies, template.length) == (2, 3)
    assert template.wrap([7, 8]) == [1, 2, 7, 8, 3, 7, 8]


# --- exports

EXPORTED = {"gpt2": ["{text}:", 'a "{text}" b:', "so {text}"], "bert": ["{text} a {mask}", "the {mask}, {text}"]}


@pytest.mark.parametrize(("kind", "prompt"), [(kind, prompt) for kind in EXPORTED for prompt in EXPORTED[kind]])
@pytest.mark.parametrize("layer", [None, -2])
def test_the_exported_tokenizer_and_module_are_the_view(load, kind, prompt, layer):
    view = Prompt(prompt, layer=layer, subtract_bias=False).fit(load(kind), ())
    encoder = view.as_encoder()
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        states = encoder.model(**inputs, output_hidden_states=True).hidden_states
        found = view.as_module(0)(states, inputs["input_ids"], inputs["attention_mask"])
    np.testing.assert_allclose(found, view.encode(TEXTS), atol=1e-5)
    long = encoder.tokenizer("x " * 99, truncation=True)["input_ids"]
    template = view.reading.templates[0]
    assert len(long) == encoder.max_length
    assert long[len(long) - len(template.pieces[1]) :] == list(template.pieces[1])


@pytest.mark.parametrize("view", [Prompt(["{text}:", "{text};"]), Contrast("{text}:", "{text};"), Echo(TWICE)])
def test_what_takes_several_readings_is_not_exported(load, view):
    with pytest.raises(InputError, match="several readings"):
        view.fit(load("gpt2"), ()).as_module(0)
    with pytest.raises(InputError, match="several readings"):
        Prompt("{text} {mask}").fit(load("bert"), ()).as_encoder()


@pytest.mark.parametrize(("prompt", "layer", "stock"), [("{text}:", None, True), ("a {text}=", -2, False)])
def test_sentence_transformers_put_texts_into_the_prompt(tiny, sentences, tmp_path, prompt, layer, stock):
    library = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    from bertflow import to_sentence_transformer

    parts = [Part(Prompt(prompt, layer=layer), Whitening(alpha=0.5))]
    model = BertFlow.fit(sentences[:100], tiny("gpt2"), parts=parts, device="cpu")
    exported = to_sentence_transformer(model)
    np.testing.assert_allclose(exported.encode(TEXTS), model.encode(TEXTS), atol=1e-4)
    exported.save_pretrained(str(tmp_path / "model"))
    again = library.SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=not stock)
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-4)
    assert stock == all(type(module).__module__.startswith("sentence_transformers.") for module in exported)


def test_onnx_puts_texts_into_the_prompt(tiny, sentences, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from bertflow import OnnxModel
    from bertflow.integrations.onnx import export_onnx

    parts = [Part(Prompt('a "{text}" b:'), Whitening(alpha=0.5))]
    model = BertFlow.fit(sentences[:100], tiny("gpt2"), parts=parts, device="cpu")
    export_onnx(model, tmp_path / "onnx")
    runtime = OnnxModel.from_pretrained(tmp_path / "onnx")
    np.testing.assert_allclose(runtime.encode(TEXTS), model.encode(TEXTS), atol=1e-3)


def test_a_prompt_beside_other_parts_is_not_exported(tiny, sentences):
    from bertflow import to_sentence_transformer

    two = [Part(Pooled("mean"), Whitening()), Part(Prompt("{text}:"), Whitening())]
    model = BertFlow.fit(sentences[:100], tiny("gpt2"), parts=two, device="cpu")
    with pytest.raises(InputError, match="beside other parts cannot be exported"):
        to_sentence_transformer(model)


# --- the judge


@pytest.mark.parametrize(("kind", "tried"), [("gpt2", True), ("bert", False)])
def test_with_labels_the_judge_tries_prompts_on_decoders(tiny, kind, tried):
    from bertflow import judge
    from bertflow.evaluation import PairSet, PairTask

    texts = [f"{one} {other}" for one in "abcdefghijk" for other in "abcdefghijk"]
    gold = np.random.default_rng(0).uniform(size=60)
    labels = PairTask("own", "spearman", {"all": PairSet(texts[:60], texts[60:120], gold)}, [])
    found = judge(texts, Encoder(tiny(kind), device="cpu"), labels=labels)
    assert ({"prompt", "prompt-half"} <= {one.recipe for one in found.ranking}) == tried


# --- the command line


@pytest.fixture
def corpus(sentences, tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(sentences[:60]))
    return file


def test_prompts_of_ones_own_on_the_command_line(run, tiny, corpus, tmp_path):
    mine = ["--prompt", "{text}:", "--prompt", "so {text}=", "--layer", -2]
    code, _, err = run("fit", corpus, "-e", tiny("gpt2"), *mine, "-o", tmp_path / "model", "--device", "cpu")
    assert code == 0, err
    (part,) = BertFlow.from_pretrained(tmp_path / "model", device="cpu").parts
    assert (part.view.template, part.view.layer, part.calibrator.alpha) == (["{text}:", "so {text}="], -2, 0.5)


@pytest.mark.parametrize("wrong", [("--recipe", "whitening"), ("--recipe", "static"), ("--pooling", "cls")])
def test_a_recipe_without_a_prompt_takes_none(run, tiny, corpus, tmp_path, wrong):
    code, _, err = run("fit", corpus, "-e", tiny("gpt2"), "--prompt", "{text}:", *wrong, "-o", tmp_path / "model")
    assert code != 0
    assert "has no prompt" in err or "brings its own pooling" in err
    assert not (tmp_path / "model").exists()
