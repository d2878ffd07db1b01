"""Calibration inside FAISS: the same cosines as outside, and an index folder that is whole or refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bertflow import (
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    ModelFolderError,
    RemoveTopComponents,
    Standardize,
    Whitening,
)
from bertflow.arrays import unit_rows

faiss = pytest.importorskip("faiss", reason="needs pip install 'bertflow[faiss]'")

from bertflow.integrations.faiss import SearchIndex, build_index, calibrated_index, pretransform  # noqa: E402

AFFINE = [Identity(), Standardize(), RemoveTopComponents(2), Whitening(), Whitening(5), Whitening(method="zca")]


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(400, 12)) @ rng.normal(size=(12, 12)) + 4 * rng.normal(size=12)).astype(np.float32)


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def whitened(encoder, sentences):
    """An index over all sentences; do not change it."""
    return build_index(encoder, sentences)


class Untouchable:
    """An encoder that must not be asked."""

    name, dim, fingerprint = "untouchable", 16, "0"

    def encode(self, sentences, *, show_progress_bar=False):
        raise AssertionError("The mistake should have been found before the work.")


# --- the transforms


@pytest.mark.parametrize("calibrator", AFFINE, ids=repr)
def test_raw_vectors_in_calibrated_cosines_out(calibrator, vectors):
    calibrator.fit(vectors)
    index = calibrated_index(calibrator)
    index.add(vectors)
    cosines, rows = index.search(vectors[:20], 400)
    latents = unit_rows(calibrator.transform(vectors.astype(np.float64)))
    expected = latents[:20] @ latents.T
    assert np.allclose(cosines, np.take_along_axis(expected, rows, axis=1), atol=1e-5)
    assert np.allclose(cosines, -np.sort(-expected, axis=1), atol=1e-5)


def test_transforms_go_before_an_index_of_ones_own_and_to_disk(vectors, tmp_path):
    whitening = Whitening(6).fit(vectors)
    own = faiss.IndexPreTransform(faiss.IndexFlatIP(6))
    for transform in reversed(pretransform(whitening)):
        own.prepend_transform(transform)
    own.add(vectors)
    faiss.write_index(own, str(tmp_path / "own.faiss"))
    again = faiss.read_index(str(tmp_path / "own.faiss"))
    ours = calibrated_index(whitening)
    ours.add(vectors)
    for index in (own, again):
        assert np.array_equal(index.search(vectors[:9], 5)[1], ours.search(vectors[:9], 5)[1])


def test_a_flow_is_applied_outside(vectors):
    flow = FlowCalibrator(epochs=2, random_state=0).fit(vectors)
    with pytest.raises(InputError, match="FlowCalibrator is no affine map"):
        pretransform(flow)
    latents = flow.transform(vectors)
    index = calibrated_index(flow)
    index.add(latents)
    cosines, rows = index.search(latents[:10], 3)
    expected = unit_rows(latents[:10]) @ unit_rows(latents).T
    assert np.allclose(cosines, np.take_along_axis(expected, rows, axis=1), atol=1e-5)


def test_a_zero_vector_has_cosine_zero(vectors):
    index = calibrated_index(Identity().fit(vectors))
    index.add(vectors)
    assert not index.search(np.zeros((1, 12), dtype=np.float32), 3)[0].any()


def test_faiss_and_torch_live_in_one_process_whoever_comes_first():
    code = "import faiss, torch, numpy as np; x = np.eye(300, dtype='f'); i = faiss.IndexFlatIP(300); i.add(x); "
    code += "torch.ones(300, 300) @ torch.ones(300, 300); i.search(x, 2); torch.ones(9, 9).sum(); print(i.ntotal)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "300"


# --- building and searching


@pytest.mark.parametrize("recipe", ["whitening", "whitening-7", "raw@cls", "flow", "static", "static-4", "best"])
def test_search_finds_what_similarity_finds(encoder, sentences, recipe):
    index = build_index(encoder, sentences, recipe=recipe)
    assert index.model.recipe == recipe
    assert index.index.d == (index.model.dim if recipe in ("flow", "best") else index.model.parts[0].view.dim)
    queries = [*sentences[3:6], "a slow red bird sings"]
    result = index.search(queries, k=7)
    expected = index.model.similarity(queries, sentences)
    for row, hits in zip(expected, result.hits, strict=True):
        assert [hit.rank for hit in hits] == list(range(1, 8))
        assert np.allclose([hit.cosine for hit in hits], np.sort(row)[::-1][:7], atol=1e-3)
        assert np.allclose([hit.cosine for hit in hits], [row[hit.row] for hit in hits], atol=1e-3)
        assert all(sentences[hit.row] == hit.text for hit in hits)
    assert [hits[0].text for hits in result.hits[:3]] == sentences[3:6]
    assert result.encode_seconds > 0
    assert result.search_seconds > 0


def test_a_fitted_model_is_taken_as_it_is(small_model, sentences):
    index = build_index(small_model, sentences[:50])
    assert index.model is small_model
    assert len(index) == 50
    assert index.search(sentences[9], 1).hits[0][0].text == sentences[9]
    assert len(build_index(small_model, ["one text only"]).search("tea", 10).hits[0]) == 1


def test_repeated_and_blank_texts(encoder, sentences):
    texts = ["", *sentences[:40], sentences[0], "  ", sentences[0]]
    index = build_index(encoder, texts, recipe="raw")
    assert len(index) == 40
    assert index.report["repeated"] == 2
    assert index.report["blank"] == 2
    best = index.search(sentences[0], 1).hits[0][0]
    assert (best.row, best.copies) == (1, 3)
    assert len(index.search("tea", k=1000).hits[0]) == 40


@pytest.mark.parametrize(
    ("queries", "k", "sentence"),
    [
        (" ", 3, "Query 1 is empty"),
        (["tea", ""], 3, "Query 2 is empty"),
        ([], 3, "There are no texts"),
        ("tea", 0, "k is 0"),
        ("tea", 2.5, "k is 2.5"),
        ([3], 3, "every text must be a str"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(whitened, queries, k, sentence):
    with pytest.raises(InputError, match=sentence):
        whitened.search(queries, k)


@pytest.mark.parametrize(
    ("texts", "options", "sentence"),
    [
        ([], {}, "There are no texts"),
        (["", " "], {}, "All 2 texts are blank"),
        (["tea", "cat"], {"factory": "Nonsense"}, "FAISS makes no index of 16 dimensions from 'Nonsense'"),
        (["tea", "cat"], {"parameters": "nprobe=4"}, "could not set parameter nprobe"),
        (["tea", "cat"], {"recipe": "bleach"}, "Unknown recipe 'bleach'"),
        (["tea", "cat"], {"recipe": "flow", "dimension": 4}, "FlowCalibrator does not"),
        (["tea", "cat"], {"recipe": "best", "dimension": 4}, "Whitening beside .* does not"),
        (["tea", "cat"], {"dimension": 17}, "dimension is 17; it must be a number from 1 to 16"),
        (["tea", "cat"], {"dimension": 0}, "dimension is 0"),
    ],
)
def test_mistakes_are_found_before_the_work(texts, options, sentence):
    with pytest.raises(InputError, match=sentence):
        build_index(Untouchable(), texts, **options)


def test_too_few_texts(encoder, sentences, caplog):
    with pytest.raises(InputError, match="two different texts or more"):
        build_index(encoder, ["tea", "tea"])
    with pytest.raises(InputError, match="FAISS cannot fill the index 'IVF64,Flat' with 20 texts"):
        build_index(encoder, sentences[:20], factory="IVF64,Flat")
    assert "Only 20 different texts to fit whitening of 16 dimensions" in caplog.text


def test_the_earlier_option_points_to_the_recipe(encoder, sentences):
    with pytest.warns(FutureWarning, match="write recipe='none'"):
        assert build_index(encoder, sentences[:9], calibrator="none").model.recipe == "raw"


# --- fewer dimensions and approximate search


def test_reduced_is_the_same_as_whitening_with_so_many_components(encoder, sentences, whitened):
    reduced = build_index(encoder, sentences, dimension=6)
    expected = Whitening(6).fit(encoder.encode(sentences))
    assert np.allclose(
        reduced.model.encode(sentences[:9]), expected.transform(encoder.encode(sentences[:9])), atol=1e-6
    )
    from_model = build_index(whitened.model, sentences, dimension=6)
    assert from_model.search("tea", 5).hits == reduced.search("tea", 5).hits
    assert (reduced.index.d, reduced.index.index.d) == (16, 6)


def test_recall_is_what_counting_by_hand_gives(encoder, sentences, whitened):
    reduced = build_index(encoder, sentences, dimension=6)
    full, small = (unit_rows(index.model.encode(sentences)) for index in (whitened, reduced))
    shared = 0
    for row in range(len(sentences)):
        near = [np.argsort(-(space @ space[row]))[:12] for space in (full, small)]
        shared += len(set.intersection(*(set([r for r in rows if r != row][:10]) for rows in near)))
    assert reduced.report["recall"] == pytest.approx(shared / (10 * len(sentences)), abs=0.002)
    assert (reduced.report["recall_at"], reduced.report["recall_queries"]) == (10, len(sentences))


def test_recall_of_nothing_lost_is_one(encoder, sentences, whitened):
    assert whitened.report["recall"] is None  # exact, in all dimensions
    assert build_index(encoder, sentences, dimension=16).report["recall"] == pytest.approx(1, abs=0.002)
    assert build_index(encoder, sentences[:3], dimension=16).report["recall"] == 1


@pytest.mark.parametrize(("factory", "parameters"), [("HNSW32", "efSearch=300"), ("IVF8,Flat", "nprobe=8")])
def test_other_indices_by_their_factory_strings(encoder, sentences, factory, parameters):
    index = build_index(encoder, sentences, factory=factory, parameters=parameters)
    assert index.report["recall"] > 0.95
    assert index.search(sentences[5], 1).hits[0][0].text == sentences[5]
    if factory.startswith("IVF"):
        assert build_index(encoder, sentences, factory=factory).report["recall"] < index.report["recall"]


def test_threads_are_as_they_were(whitened):
    before = faiss.omp_get_max_threads()
    whitened.search("tea")
    assert faiss.omp_get_max_threads() == before


# --- on disk


@pytest.fixture(scope="module")
def saved_once(small_model, sentences, tmp_path_factory):
    return build_index(small_model, sentences[:60]).save(tmp_path_factory.mktemp("faiss") / "index")


@pytest.fixture
def saved(saved_once, tmp_path):
    """A copy to be spoilt."""
    return shutil.copytree(saved_once, tmp_path / "index")


@pytest.mark.parametrize("kind", ["flow", "whitening", "best"])
def test_saved_and_loaded_it_finds_the_same(small_model, whitened, encoder, sentences, tmp_path, kind):
    if kind == "whitening":
        index = whitened
    elif kind == "best":
        index = build_index(encoder, sentences, recipe="best")
    else:
        index = build_index(small_model, [*sentences, "Grüße, 東京 \u2028 “quoted”"])
    index.save(tmp_path / "index", bundle_encoder=True)
    again = SearchIndex.load(tmp_path / "index", device="cpu")
    assert again.search(["tea", sentences[2]], 400).hits == index.search(["tea", sentences[2]], 400).hits
    assert again.report == index.report
    assert list(again.entries) == list(index.entries)
    again.save(tmp_path / "index")  # over itself, while its texts are read from there
    assert list(again.entries) == list(index.entries)


@pytest.mark.parametrize("factory", ["Flat", "HNSW16", "IVF8,Flat"])
def test_the_same_texts_give_the_same_bytes(encoder, sentences, tmp_path, factory):
    for name in "ab":
        build_index(encoder, sentences, factory=factory, dimension=5).save(tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert Path("index.faiss") in files
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


@pytest.mark.parametrize(
    "name", ["index.faiss", "texts.jsonl", "texts.offsets.npy", "model/config.json", "config.json"]
)
@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_damaged_folders_are_refused(saved, name, damage):
    path = saved / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"x" + content[1:])
    with pytest.raises(ModelFolderError, match=r"missing|damaged|no config\.json"):
        SearchIndex.load(saved)


def test_foreign_and_newer_folders_are_refused(saved, small_model, encoder, sentences, tmp_path):
    with pytest.raises(ModelFolderError, match="does not exist: it is not a search index"):
        SearchIndex.load(tmp_path / "nowhere")
    small_model.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="is not a search index but something else"):
        SearchIndex.load(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="nothing was written"):
        SearchIndex.load(saved).save(tmp_path / "model")
    assert BertFlow.from_pretrained(tmp_path / "model", device="cpu").dim == 16
    config = json.loads((saved / "config.json").read_text())
    for change, sentence in [({"format_version": 99}, "format version 99"), ({"sha256": 3}, "is damaged")]:
        (saved / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ModelFolderError, match=sentence):
            SearchIndex.load(saved)


def test_another_models_files_are_refused(saved, encoder, sentences):
    shutil.rmtree(saved / "model")
    other = BertFlow(encoder, Whitening().fit(encoder.encode(sentences)))
    other.save_pretrained(saved / "model")
    with pytest.raises(ModelFolderError, match="belongs to something else"):
        SearchIndex.load(saved)


def test_an_index_of_ours_is_replaced(saved, small_model, sentences):
    build_index(small_model, sentences[:7]).save(saved)
    assert len(SearchIndex.load(saved)) == 7
