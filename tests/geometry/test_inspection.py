"""Spaces, tokens, masked language models and outliers, with the mini encoder and tiny random ones."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers

from bertflow import Encoder, analyze
from bertflow.data import mini_folder, sample_pairs, sample_sentences
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.errors import InputError
from bertflow.evaluation import PairSet, PairTask
from bertflow.geometry import decompose_masked_lm, make_spaces, masked, readable_tables
from bertflow.geometry.tokens import count_tokens_of, has_token_embeddings, input_embeddings, token_ids

GARBAGE = ["00110101 11010 0x4f 0x5a", "<td>&nbsp;</td><td>&nbsp;</td>", "qpwoe zxmcn bvnth ghfjd"]


@pytest.fixture(scope="module")
def corpus():
    return sample_sentences()[::18]


@pytest.fixture(scope="module")
def pairs():
    some = sample_pairs()[::6]
    gold = np.array([pair.score for pair in some])
    subset = PairSet([pair.sentence1 for pair in some], [pair.sentence2 for pair in some], gold)
    return PairTask("sample", "spearman", {"all": subset}, [])


@pytest.fixture(scope="module")
def analysis(mini, corpus, pairs):
    pytest.importorskip("rapidfuzz", reason="edit distance needs pip install 'bertflow[evaluation]'")
    return analyze([*corpus, corpus[0]], mini, recipe="flow", pairs=pairs)


def test_the_flow_makes_the_space_isotropic(analysis, corpus):
    before, after = analysis.isotropy.before, analysis.isotropy.after
    assert before.rows == after.rows == len(corpus), "a repeated sentence counts once"
    assert before.mean_cosine > 0.4 > abs(after.mean_cosine)
    assert after.iso_score > before.iso_score
    assert after.uniformity < before.uniformity
    assert analysis.gaussian.dim == after.dim == 256
    assert analysis.dimensions.before.top[0].share > analysis.dimensions.after.top[0].share
    assert analysis.normality.after.squared_radius == pytest.approx(1, abs=0.2)


def test_frequency_density_and_pairs_are_there(analysis, corpus, pairs):
    assert analysis.words.words[0] == 100
    assert sum(group.sentences for group in analysis.frequency.before.groups) == len(corpus)
    assert analysis.density.after.correlation < -50
    scores = [one.log_density for one in analysis.least_likely]
    assert scores == sorted(scores)
    assert analysis.pairs.pairs == len(pairs.subsets["all"])
    assert 0 < analysis.pairs.paraphrases < analysis.pairs.pairs
    assert analysis.pairs.alignment.before < analysis.pairs.alignment.after, "a narrow cone aligns everything"
    assert analysis.pairs.gold.gold_correlation is None
    assert -100 < analysis.pairs.similarity.before.correlation < 0
    assert analysis.notes == ()


def test_an_analysis_is_plain_and_repeatable(analysis, mini, corpus, pairs):
    text = json.dumps(analysis.to_dict(), allow_nan=False)
    assert json.loads(text)["settings"]["encoder"] == "mini"
    again = analyze(corpus, mini, recipe="flow", pairs=pairs)
    assert json.dumps(again.to_dict()) == text


def test_every_table_can_be_read(analysis):
    tables = readable_tables(analysis)
    assert len({table.title for table in tables}) == len(tables) == 10
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert table.reading.endswith(".")


def test_a_saved_or_given_model_is_not_fitted_again(small_model, sentences):
    spaces = make_spaces(sentences[:100], model=small_model)
    np.testing.assert_allclose(spaces.after, small_model.encode(sentences[:100]), atol=1e-5)
    assert spaces.settings["fitted_on"] != "this corpus"


def test_what_is_missing_is_said(tiny_bert, sentences):
    found = analyze(sentences, Encoder(tiny_bert, device="cpu"), recipe="whitening")
    assert found.logits is found.density is found.pairs is None
    assert found.least_likely == ()
    assert found.settings["recipe"] == "whitening"
    notes = " ".join(found.notes)
    for part in ("masked-language-model head", "whitening is not a density", "give pairs"):
        assert part in notes
    assert len(readable_tables(found)) == 5


def test_an_encoder_without_tokens(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(50)]
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in rng.normal(size=8))}\n" for word in words))
    texts = [" ".join(rng.choice(words, 4)) for _ in range(60)]
    found = analyze(texts, path, recipe="whitening")
    assert found.words is found.frequency is found.logits is None
    assert "no token embeddings" in found.notes[0]
    assert len(readable_tables(found)) == 3


def test_a_space_needs_sentences(mini):
    with pytest.raises(InputError, match="different sentence"):
        analyze(["One.", "One."], mini)
    with pytest.raises(InputError, match="Unknown recipe"):
        analyze(["One.", "Two.", "Three."], mini, recipe="magic")


def test_mini_knows_how_often_its_tokens_were_trained_on():
    encoder = Encoder("mini", device="cpu")
    found = count_tokens_of(encoder, [], len(input_embeddings(encoder)))
    assert found.source == "token_counts.tsv of mini"
    assert np.count_nonzero(found.by_id) == 10_000
    assert encoder.tokenizer.convert_ids_to_tokens(found.ranked()[:3].tolist()) == ["the", ",", "."]
    assert found.by_id.sum() > 75_000_000


def test_counts_from_the_corpus_from_words_and_from_tokens(tiny_bert, tmp_path):
    encoder = Encoder(tiny_bert, device="cpu")
    vocabulary = encoder.tokenizer.get_vocab()
    ids = token_ids(encoder, ["the cat sat", "the catz"])
    size = len(input_embeddings(encoder))
    own = count_tokens_of(encoder, ids, size)
    assert own.source == "this corpus"
    assert own.by_id[[vocabulary["the"], vocabulary["cat"], vocabulary["##z"], vocabulary["[CLS]"]]].tolist() == [
        2,
        2,
        1,
        0,
    ]
    assert own.ranked()[:2].tolist() == sorted([vocabulary["the"], vocabulary["cat"]])
    words = tmp_path / "words.txt"
    words.write_text("the 9\ncat 5\nzebra 4\n")
    found = count_tokens_of(encoder, ids, size, words)
    assert found.ranked().tolist() == [vocabulary["the"], vocabulary["cat"]]
    assert found.of_words
    assert not own.of_words
    words.write_text("zebra 4\n")
    with pytest.raises(InputError, match="Fewer than two tokens"):
        count_tokens_of(encoder, ids, size, words)


def test_an_encoder_may_bring_its_token_counts(tiny_bert, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert, folder)
    (folder / "token_counts.tsv").write_text("dog\t70\n##z\t50\nthe\t20\n")
    encoder = Encoder(folder, device="cpu")
    vocabulary = encoder.tokenizer.get_vocab()
    found = count_tokens_of(encoder, token_ids(encoder, ["the cat"]), len(vocabulary))
    assert "token_counts.tsv" in found.source
    assert not found.of_words
    assert found.ranked().tolist() == [vocabulary["dog"], vocabulary["##z"], vocabulary["the"]]


def test_a_sentence_transformer_has_tokens_too(tiny_bert):
    library = pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    from bertflow.encoders.choosing import as_encoder

    with quiet_transformers():
        encoder = as_encoder(library.SentenceTransformer(str(tiny_bert), device="cpu"))
    assert has_token_embeddings(encoder)
    assert input_embeddings(encoder).shape[1] == 16
    assert len(token_ids(encoder, ["the cat"])[0]) == 2


def test_logits_at_masked_positions_are_those_of_the_whole_model(mini, corpus):
    model = masked._load(mini)
    rows = mini.tokenizer(corpus[:5])["input_ids"]
    chosen = [([*ids[:2], mini.tokenizer.mask_token_id, *ids[3:]], 2) for ids in rows]
    found = masked._logits(model, mini.tokenizer.pad_token_id, chosen)
    for (ids, place), logits in zip(chosen, found, strict=True):
        with torch.inference_mode():
            whole = model(torch.tensor([ids])).logits[0, place].numpy()
        np.testing.assert_allclose(logits, whole, atol=1e-3)


def test_word_frequency_is_in_the_logits(mini, corpus):
    ids = token_ids(mini, corpus)
    counts = count_tokens_of(mini, ids, len(input_embeddings(mini))).by_id
    found = decompose_masked_lm(mini, corpus, counts, contexts=100)
    assert found.dot_product.contexts == 100
    overall = found.dot_product.overall
    assert 0.02 < overall.explained < overall.constant < 1
    assert found.dot_product.bins[0].logit > found.dot_product.bins[-1].logit
    assert found.logit.overall.explained != overall.explained, "the output bias belongs to the logit, not to h·w"
    assert found == decompose_masked_lm(mini, corpus, counts, contexts=100)


def test_distilbert_has_a_head_of_its_own_kind(tiny, tmp_path, sentences):
    config = transformers.AutoConfig.from_pretrained(tiny("distilbert"))
    with torch.random.fork_rng(), quiet_transformers():
        transformers.DistilBertForMaskedLM(config).save_pretrained(tmp_path)
        transformers.AutoTokenizer.from_pretrained(tiny("distilbert")).save_pretrained(tmp_path)
    encoder = Encoder(tmp_path, device="cpu")
    counts = np.arange(config.vocab_size)
    assert decompose_masked_lm(encoder, sentences, counts, contexts=20).dot_product.contexts == 20


@pytest.mark.parametrize(("kind", "message"), [("gpt2", "no masked language model"), ("bert", "has no masked")])
def test_models_without_a_head_say_so(tiny, kind, message, sentences):
    with pytest.raises(InputError, match=message):
        decompose_masked_lm(Encoder(tiny(kind), device="cpu"), sentences, np.ones(100, dtype=np.int64))


def test_the_shipped_encoder_is_looked_up_where_it_lies(mini):
    from bertflow.geometry.tokens import encoder_folder

    assert encoder_folder(mini) == mini_folder()
