"""The recipe on a toy corpus: our own sample sentences, six to a paragraph."""

import json
import lzma

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertflow import InputError
from bertflow.data import sample_sentences
from bertflow.encoders.transformer import Encoder
from pretraining import prepare as preparing
from pretraining.export import export
from pretraining.masking import IGNORED, keep_texts_apart, mask_tokens
from pretraining.muon import Muon
from pretraining.prepare import CLS, MASK, PAD, ROW, SEP, SPECIAL, cut, pack, prepare
from pretraining.train import Recipe, Run, predict, train

VOCABULARY = 1000
SMALL = {"steps": 40, "rows": 32, "layers": 2, "width": 32, "heads": 2}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder that ``prepare`` wrote."""
    folder = tmp_path_factory.mktemp("work")
    sentences = sample_sentences()
    paragraphs = [" ".join(sentences[i : i + 6]) for i in range(0, len(sentences), 6)]
    with lzma.open(folder / "one.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join(paragraphs[:400]))
    (folder / "two.txt").write_text("\n\n".join(paragraphs[400:]), encoding="utf-8")
    prepare([folder / "one.txt.xz", folder / "two.txt"], folder, VOCABULARY)
    return folder


def start(work, tmp_path, **changes):
    """Copy a prepared folder and write a recipe into it."""
    for name in ("tokenizer.json", "train.npy", "validation.npy", "token_counts.tsv"):
        (tmp_path / name).write_bytes((work / name).read_bytes())
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(SMALL | changes))
    return recipe


def texts_of(rows):
    flat = [row[row != PAD].tolist() for row in rows]
    return sorted((CLS, *text) for row in flat for text in _split(row))


def _split(row):
    starts = [i for i, token in enumerate(row) if token == CLS]
    return [row[a + 1 : b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def test_texts_are_cut_at_sentence_ends_and_nothing_is_lost():
    sentences = [[10] * 5, [11] * 7, [12] * 30, [13] * 4]
    texts = list(cut(sentences, 16))
    assert texts == [[CLS, *[10] * 5, *[11] * 7, SEP], [CLS, *[12] * 14, SEP], [CLS, *[13] * 4, SEP]]
    assert list(cut([[]], 16)) == []


def test_packing_keeps_every_text_whole_and_wastes_little():
    random = np.random.default_rng(0)
    texts = [[CLS, *random.integers(5, 99, length - 2).tolist(), SEP] for length in random.integers(3, 129, 3000)]
    rows = pack(texts)
    assert rows.shape[1] == ROW
    assert texts_of(rows) == sorted(map(tuple, texts))
    assert np.count_nonzero(rows) / rows.size > 0.97
    assert pack([]).shape == (0, ROW)


def test_prepare_keeps_the_words_and_holds_paragraphs_out(work):
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert [tokenizer.id_to_token(i) for i in range(5)] == list(SPECIAL)
    train_rows, held_out = np.load(work / "train.npy"), np.load(work / "validation.npy")
    assert np.count_nonzero(train_rows) / train_rows.size > 0.9
    whole = " ".join(tokenizer.encode(sentence, add_special_tokens=False).tokens[0] for sentence in sample_sentences())
    assert len(texts_of(train_rows)) > 1000
    assert 0 < len(held_out) < len(train_rows) / 20
    assert not set(texts_of(train_rows)) & set(texts_of(held_out))
    assert tokenizer.decode(train_rows[0][train_rows[0] != PAD].tolist()).split()[0] in whole


def test_token_counts_are_those_of_the_training_rows(work):
    rows, tokenizer = np.load(work / "train.npy"), Tokenizer.from_file(str(work / "tokenizer.json"))
    lines = (work / "token_counts.tsv").read_text(encoding="utf-8").splitlines()
    counts = {token: int(count) for token, count in (line.split("\t") for line in lines)}
    assert not set(counts) & set(SPECIAL)
    assert sum(counts.values()) == np.count_nonzero(rows >= len(SPECIAL))
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert counts["the"] == np.count_nonzero(rows == tokenizer.token_to_id("the"))


def test_sentences_end_where_a_reader_sees_it():
    split = preparing.SENTENCE_END.split('He said "Stop." Then he left (at 3 p.m. sharp)! "Why?" she asked. 12 came.')
    assert split == ['He said "Stop."', "Then he left (at 3 p.m. sharp)!", '"Why?" she asked.', "12 came."]


def test_masking_hides_a_fifth_in_the_published_proportions():
    ids = torch.randint(5, VOCABULARY, (400, ROW), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = CLS, SEP
    seen, positions, labels = mask_tokens(ids, 0.2, VOCABULARY, torch.Generator().manual_seed(1))
    assert len(positions.unique()) == len(positions) == round(0.2 * ids.numel())
    assert torch.equal(ids.flatten()[positions], labels)
    assert (labels >= len(SPECIAL)).all()
    shown = seen.flatten()[positions]
    untouched = torch.ones(ids.numel(), dtype=torch.bool)
    untouched[positions] = False
    assert torch.equal(seen.flatten()[untouched], ids.flatten()[untouched])
    shares = [(shown == MASK).float().mean(), (shown == labels).float().mean()]
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)


def test_masking_never_touches_special_tokens_even_in_empty_rows():
    ids = torch.tensor([[CLS, 7, SEP, PAD, PAD, PAD, PAD, PAD, PAD, PAD]])
    seen, positions, labels = mask_tokens(ids, 0.5, VOCABULARY, torch.Generator().manual_seed(0))
    assert len(positions) == 5
    assert sorted(labels.tolist()) == [IGNORED] * 4 + [7]
    assert torch.equal(seen[ids != 7], ids[ids != 7])


def test_packed_texts_do_not_see_each_other(work, tmp_path):
    start(work, tmp_path)
    run = Run(tmp_path, Recipe(**SMALL), "cpu")
    one, two = [CLS, 20, 21, 22, SEP], [CLS, 30, 31, SEP]
    row = torch.tensor([[*one, *two, PAD]])
    mask, places = keep_texts_apart(row)
    assert places.tolist()[0][:9] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert mask[0, 0].sum(-1).tolist() == [5] * 5 + [4] * 4 + [1]
    with torch.inference_mode():
        packed = predict(run.model, row, torch.arange(9))
        alone = [run.model(input_ids=torch.tensor([text])).logits[0] for text in (one, two)]
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_muon_is_torchs_muon():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((8, 16), (16, 8), (8, 16))]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    pair = (
        Muon(ours, 1e-2, 0.1),
        torch.optim.Muon(theirs, lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(5):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        for optimizer in pair:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=0)  # bfloat16 inside


def test_without_muon_adamw_takes_everything_and_decays_it(work, tmp_path):
    start(work, tmp_path)
    run = Run(tmp_path, Recipe(**SMALL | {"muon": False}), "cpu")
    (adamw,) = run.optimizers
    assert {id(p) for group in adamw.param_groups for p in group["params"]} == {id(p) for p in run.model.parameters()}
    assert {group["weight_decay"] for group in adamw.param_groups} == {run.recipe.weight_decay}
    losses = [float(run.advance()) for _ in range(30)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


@pytest.fixture(scope="module")
def trained(work, tmp_path_factory):
    """A finished toy run."""
    folder = tmp_path_factory.mktemp("run")
    train(folder, start(work, folder), "cpu", every=10)
    return folder


def test_the_loss_falls(trained):
    log = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [10, 20, 30, 40]
    assert log[-1]["validation"] < log[0]["validation"] < np.log(VOCABULARY)
    assert all(np.isfinite(line[f"validation_{length}"]) for line in log for length in (32, 64, 128))


def test_a_stopped_run_ends_where_it_would_have_ended(trained, work, tmp_path, monkeypatch):
    recipe = start(work, tmp_path)
    advance = Run.advance

    def killed(run):
        if run.step == 25:
            raise KeyboardInterrupt
        return advance(run)

    monkeypatch.setattr(Run, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, recipe, "cpu", every=10)
    monkeypatch.undo()
    train(tmp_path, recipe, "cpu", every=10)
    whole, resumed = (Run(folder, Recipe(**SMALL), "cpu") for folder in (trained, tmp_path))
    assert whole.step == resumed.step == 40
    for (name, a), (_, b) in zip(whole.tensors(), resumed.tensors(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)


def test_a_checkpoint_of_other_settings_is_refused(trained):
    with pytest.raises(InputError, match="is of another run"):
        Run(trained, Recipe(**SMALL | {"seed": 1}), "cpu")


def test_export_without_a_run_says_so(tmp_path):
    with pytest.raises(InputError, match="holds no checkpoint"):
        export(tmp_path, tmp_path / "model")


def test_the_exported_model_is_the_trained_one(trained, tmp_path):
    export(trained, tmp_path / "toy")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "toy", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "toy")
    batch = tokenizer(["The bread is in the oven.", "Why?"], padding=True, return_tensors="pt")
    run = Run(trained, Recipe(**SMALL), "cpu")
    with torch.inference_mode():
        theirs = model(**batch).logits[batch["attention_mask"].bool()]
        positions = batch["attention_mask"].flatten().nonzero().flatten()
        ours = predict(run.model, batch["input_ids"], positions)
    torch.testing.assert_close(theirs, ours, atol=1e-3, rtol=1e-3)
    weights = {p.dtype for p in AutoModelForMaskedLM.from_pretrained(tmp_path / "toy").parameters()}
    assert weights == {torch.float16}
    assert Encoder(tmp_path / "toy").encode(["One sentence."]).shape == (1, SMALL["width"])
    card = (tmp_path / "toy" / "README.md").read_text(encoding="utf-8")
    assert "{" not in card
    assert "| 40 |" in card
