"""Recipes: one table of names, from which everything else is made."""

import json
import shutil
from itertools import product

import numpy as np
import pytest

import bertflow
from bertflow import (
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    Part,
    Pooled,
    RemoveTopComponents,
    Standardize,
    TokenTable,
    Whitening,
)
from bertflow.recipes import (
    ALIASES,
    DEFAULT,
    DEFAULT_OF_ONE_VIEW,
    PRESETS,
    TABLE,
    calibrator_of,
    check_recipe,
    is_random,
    make_parts,
    readings,
    recipes,
    register_recipe,
)

TEXTS = ["the cat sat on the mat", "a dog runs", "tea", "the red house and then tea"]
NAMES = [pattern.replace("K", "3") for pattern in TABLE]
OF_ONE_VIEW = [pattern.replace("K", "3") for pattern, recipe in TABLE.items() if not recipe.brings_views]
every = pytest.mark.parametrize("name", NAMES)


def described(parts):
    return [(repr(part.view), repr(part.calibrator), part.weight) for part in parts]


# --- names


@every
def test_every_name_makes_fresh_parts(name):
    assert check_recipe(name) == name
    one, two = make_parts(name), make_parts(name)
    assert described(one) == described(two)
    assert all(isinstance(part, Part) and part.scale == 1 for part in one)
    assert not {id(part.calibrator) for part in one} & {id(part.calibrator) for part in two}
    assert TABLE.keys() == recipes().keys() == bertflow.recipes().keys()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("raw", [(Pooled(), Identity())]),
        ("sn", [(Pooled(), Standardize())]),
        ("natsv-7", [(Pooled(), RemoveTopComponents(7))]),
        ("sn+natsv-2", [(Pooled(), RemoveTopComponents(2, standardize=True))]),
        ("whitening", [(Pooled(), Whitening())]),
        ("whitening-128", [(Pooled(), Whitening(128))]),
        ("whitening-half", [(Pooled(), Whitening(alpha=0.5))]),
        ("whitening-64@cls", [(Pooled("cls"), Whitening(64))]),
        ("flow", [(Pooled(), FlowCalibrator(random_state=0))]),
        ("flow-paper@mean", [(Pooled("mean"), FlowCalibrator(preset="paper", random_state=0))]),
        ("static-64", [(TokenTable(), Whitening(64, shrinkage=0.5))]),
    ],
)
def test_what_names_stand_for(name, parts):
    assert described(make_parts(name)) == [(repr(view), repr(calibrator), 1.0) for view, calibrator in parts]


def test_the_pooling_may_be_said_apart():
    assert (
        described(make_parts("sn", "cls")) == described(make_parts("sn@cls")) == described(make_parts("sn@cls", "cls"))
    )
    with pytest.raises(InputError, match="names a pooling, and pooling='mean' is another one: say one"):
        make_parts("sn@cls", "mean")


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_another_name(alias):
    assert check_recipe(alias) == ALIASES[alias]
    assert check_recipe(f"{alias}@cls") == f"{ALIASES[alias]}@cls"
    assert described(make_parts(alias)) == described(make_parts(ALIASES[alias]))


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [("whitning", "whitening"), ("flows", "flow"), ("bset", "best"), ("statik", "static"), ("Whitening", "whitening")],
)
def test_a_typo_is_told_before_any_model_is_loaded(typo, nearest, monkeypatch):
    monkeypatch.setattr("bertflow.encoders.choosing.as_encoder", None)  # a load would fail on it
    with pytest.raises(
        InputError, match=rf"Unknown recipe '{typo}' \(did you mean '{nearest}'\?\); known are: raw, sn,"
    ):
        BertFlow.fit(TEXTS, "someone/some-model", recipe=typo)


@pytest.mark.parametrize(
    "name", ["", "natsv-", "natsv-01", "natsv-x", "whitening-1e3", "natsv-1 ", "whitening--3", "static-K"]
)
def test_what_matches_no_pattern_is_unknown(name):
    with pytest.raises(InputError, match="Unknown recipe"):
        check_recipe(name)


@pytest.mark.parametrize("name", ["sn@", "sn@average", "flow@CLS", "raw@cls@cls"])
def test_an_unknown_pooling_names_the_known_ones(name):
    with pytest.raises(InputError, match=r"Unknown pooling .*choose from cls, mean"):
        check_recipe(name)


@pytest.mark.parametrize("name", [None, 5, Whitening(), ["sn"]])
def test_what_is_no_name(name):
    with pytest.raises(InputError, match="A recipe is a name such as 'best'; got"):
        check_recipe(name)


def test_a_recipe_of_ones_own_is_known_from_then_on(monkeypatch, tiny_bert, sentences):
    monkeypatch.setattr("bertflow.recipes.TABLE", TABLE.copy())

    @register_recipe("two-K", "for this test")
    def _(view, k):
        return [Part(view, Whitening(k)), Part(Pooled("cls"), Standardize(), weight=2.0)]

    assert bertflow.recipes()["two-K"] == recipes()["two-K"] == "for this test"
    model = BertFlow.fit(sentences, tiny_bert, recipe="two-5@mean", device="cpu")
    assert (model.recipe, model.dim) == ("two-5@mean", 5 + 16)


# --- settings


@every
def test_what_is_random_follows_the_seed(name):
    one, two = (make_parts(name, random_state=seed) for seed in (1, 2))
    assert (described(one) != described(two)) == is_random(name)


@pytest.mark.parametrize(("name", "random"), [("sn", False), ("whitening", False), ("flow", True), ("static", True)])
def test_is_random(name, random):
    assert is_random(name) is random


def test_settings_reach_what_knows_them():
    flow = make_parts("flow", device="cpu", verbose=True)[0].calibrator
    assert (flow.device, flow.verbose) == ("cpu", True)
    make_parts("whitening", device="cpu", verbose=True)  # which has no such settings


@pytest.mark.parametrize("name", OF_ONE_VIEW)
def test_the_calibrator_alone_for_vectors_that_are_there(name):
    assert repr(calibrator_of(name)) == repr(make_parts(name)[0].calibrator)


@pytest.mark.parametrize("name", [*(name for name in NAMES if name not in OF_ONE_VIEW), "sn@cls"])
def test_recipes_with_views_need_text(name):
    with pytest.raises(InputError, match="needs text; for vectors name one of a single view"):
        calibrator_of(name)


def test_readings_are_what_one_pass_has_to_give(mini):
    assert readings(["sn", "whitening", "static"], mini) == [Pooled().fit(mini, ()).reading]
    both = readings(["sn", "whitening@cls", "best"], mini)
    assert len(both) == len(set(both)) == 3
    assert readings(["static"], mini) == []
    assert readings(["sn"], object()) == []


# --- what is chosen


def test_every_recipe_fits_saves_and_loads_by_name(tiny_bert, sentences, tmp_path):
    encoder = Encoder(tiny_bert, device="cpu")
    for name in NAMES:
        model = BertFlow.fit(sentences[:60], encoder, recipe=name)
        folder = model.save_pretrained(tmp_path / name.replace("+", "-"))
        again = BertFlow.from_pretrained(folder, encoder=encoder, device="cpu")
        assert (again.recipe, again.fingerprint) == (name, model.fingerprint)
        np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5, err_msg=name)


def test_the_default_is_best_where_there_are_tokens_and_safe_elsewhere(tiny_bert, sentences):
    def recipe(*args, **options):
        return BertFlow.fit(sentences[:60], *args, **options).recipe

    assert recipe(tiny_bert, device="cpu") == DEFAULT == "best"
    assert recipe(Encoder(tiny_bert, device="cpu")) == DEFAULT
    assert recipe(tiny_bert, "cls", device="cpu") == DEFAULT_OF_ONE_VIEW == "whitening-half"
    assert BertFlow.fit(sentences[:60], tiny_bert, calibrator=Standardize(), device="cpu").recipe is None


def test_a_folder_of_sentence_transformers_is_warned_of_and_keeps_its_pooling(tiny_bert, sentences, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "tuned")
    (folder / "modules.json").write_text("[]", encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"sentence-transformers made it.*usually costs points.*advise") as caught:
        model = BertFlow.fit(sentences[:60], folder, device="cpu")
    assert caught[0].filename == __file__
    assert (model.recipe, model.encoder.pooling) == (DEFAULT_OF_ONE_VIEW, "cls")
    assert BertFlow.fit(sentences[:60], folder, recipe="sn", device="cpu").encoder.pooling == "cls"  # and no warning
    assert BertFlow.fit(sentences[:60], folder, recipe="sn@mean", device="cpu").encoder.pooling == "mean"


def test_a_sentence_transformer_is_warned_of(tiny_bert, sentences):
    library = pytest.importorskip("sentence_transformers", reason="it needs bertflow[sentence-transformers]")
    theirs = library.SentenceTransformer(str(tiny_bert), device="cpu")
    with pytest.warns(UserWarning, match="sentence-transformers made it"):
        assert BertFlow.fit(sentences[:60], theirs).recipe == DEFAULT_OF_ONE_VIEW


SAID = {"recipe": "sn", "preset": "default", "parts": [Part(Pooled(), Standardize())], "calibrator": Standardize()}


@pytest.mark.parametrize(("one", "other"), [pair for pair in product(SAID, SAID) if pair[0] < pair[1]])
def test_what_to_fit_is_said_once(one, other):
    with pytest.raises(InputError, match=r"\w+ and \w+ were given, and each says what to fit: leave one of them"):
        BertFlow.fit(TEXTS, "mini", **{one: SAID[one], other: SAID[other]})


def test_presets_of_old_are_recipes():
    assert set(PRESETS.values()) <= set(TABLE)
    with pytest.raises(InputError, match=r"Unknown preset 'papers' \(did you mean 'paper'\?\).*Better, name a recipe"):
        BertFlow.fit(TEXTS, "mini", preset="papers")
