"""Vectors of one's own in a terminal: fit a calibrator on a file, transform a file, ids beside them."""

import json

import numpy as np
import pytest
import safetensors.numpy

from bertflow import BertFlow, Calibrator, Standardize, Whitening

ROWS, DIM = 60, 6


def write(path, vectors):
    """Vectors as other programs have them."""
    if path.suffix == ".npy":
        np.save(path, vectors)
    elif path.suffix == ".npz":
        np.savez(path, vectors=vectors, ids=np.arange(len(vectors)))
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file({"embeddings": vectors}, path)
    else:
        arrow = pytest.importorskip("pyarrow", reason="parquet needs pip install 'bertflow[parquet]'")
        import pyarrow.parquet

        table = arrow.table({"name": [f"row {i}" for i in range(len(vectors))], "embedding": vectors.tolist()})
        pyarrow.parquet.write_table(table, path)
    return path


def read(path):
    """Vectors, and ids where there are any."""
    if path.suffix == ".npy":
        return np.load(path), None
    if path.suffix == ".npz":
        arrays = np.load(path)
        return arrays["vectors"], arrays["ids"].tolist() if "ids" in arrays else None
    if path.suffix == ".safetensors":
        return safetensors.numpy.load_file(path)["vectors"], None
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return np.array([row["embedding"] for row in rows]), [row.get("ids") for row in rows]
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path).to_pydict()
    return np.array(table["embedding"]), table.get("ids")


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(ROWS, DIM)) @ rng.normal(size=(DIM, DIM)) + 2).astype(np.float32)


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "safetensors"])
def test_fit_and_transform_in_every_form(run, tmp_path, vectors, kind):
    path = write(tmp_path / f"x.{kind}", vectors)
    code, out, err = run("fit", path, "--recipe", "whitening-4", "-o", tmp_path / "c", "--json", "-q")
    assert code == 0, err
    assert json.loads(out) == {"saved": str(tmp_path / "c"), "recipe": "whitening-4", "rows": ROWS, "dim": 4}
    code, out, err = run("transform", path, "-m", tmp_path / "c", "-o", tmp_path / f"z.{kind}", "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["rows"] == ROWS
    np.testing.assert_allclose(read(tmp_path / f"z.{kind}")[0], Whitening(4).fit(vectors).transform(vectors), atol=1e-5)


def test_the_default_is_the_safe_recipe_and_says_what_is_next(run, tmp_path, vectors):
    code, out, err = run("fit", write(tmp_path / "x.npy", vectors), "-o", tmp_path / "c", "-q")
    assert code == 0, err
    assert "whitening-half" in out
    assert "bertflow transform" in out
    assert Calibrator.from_pretrained(tmp_path / "c").alpha == 0.5


@pytest.mark.parametrize("kind", ["npz", "parquet", "jsonl"])
def test_ids_stand_beside_the_vectors(run, tmp_path, vectors, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="parquet needs pip install 'bertflow[parquet]'")
    names = [f"id {i}" for i in range(ROWS)]
    (tmp_path / "ids.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    Standardize().fit(vectors).save_pretrained(tmp_path / "c")
    x, z = write(tmp_path / "x.npy", vectors), tmp_path / f"z.{kind}"
    code, _, err = run(
        "transform", x, "-m", tmp_path / "c", "--ids", tmp_path / "ids.txt", "-o", z, "--normalize", "-q"
    )
    assert code == 0, err
    found, ids = read(z)
    assert ids == names
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_a_model_calibrates_vectors_of_its_encoder_in_a_file(run, tmp_path, small_model, sentences):
    folder = small_model.save_pretrained(tmp_path / "model")
    x = write(tmp_path / "x.npy", small_model.encoder.encode(sentences[:20]))
    code, _, err = run("transform", x, "-m", folder, "-o", tmp_path / "z.npy", "--dtype", "float16", "-q")
    assert code == 0, err
    found = np.load(tmp_path / "z.npy")
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, small_model.encode(sentences[:20]), atol=2e-2)


def test_arrays_of_many_names_need_one(run, tmp_path, vectors):
    np.savez(tmp_path / "x.npz", one=vectors, two=vectors * 2)
    code, _, err = run("fit", tmp_path / "x.npz", "-o", tmp_path / "c")
    assert code == 1
    assert "holds 2 arrays (one, two); name one with --column" in err
    code, _, err = run("fit", tmp_path / "x.npz", "--column", "two", "-o", tmp_path / "c", "--recipe", "whitening")
    assert code == 0, err
    np.testing.assert_allclose(Calibrator.from_pretrained(tmp_path / "c").mean_, vectors.mean(0) * 2, rtol=1e-4)


@pytest.fixture
def places(tmp_path, vectors, sentences, tiny_bert):
    np.savez(tmp_path / "odd.npz", vectors=np.arange(4))
    (tmp_path / "broken.npy").write_bytes(b"no array")
    (tmp_path / "ids.txt").write_text("one\ntwo\n", encoding="utf-8")
    Whitening().fit(vectors).save_pretrained(tmp_path / "c")
    two = BertFlow.fit(sentences[:40], tiny_bert, recipe="best", device="cpu")
    two.save_pretrained(tmp_path / "two")
    write(tmp_path / "x.npy", vectors)
    write(tmp_path / "narrow.npy", vectors[:, :3])
    return tmp_path


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("fit", "x.npy", "-o", "m", "-e", "mini"), "holds vectors, and a calibrator alone is fitted on them"),
        (("fit", "x.npy", "-o", "m", "--from", "mini-flow"), "leave out --from"),
        (("fit", "x.npy", "-o", "m", "--bundle-encoder"), "leave out --bundle-encoder"),
        (("fit", "x.npy", "-o", "m", "--recipe", "best"), "needs text; for vectors name one of a single view"),
        (("fit", "x.npy", "-o", "m", "--recipe", "sn@cls"), "needs text; for vectors"),
        (("fit", "nowhere.npy", "-o", "m"), "There is no file 'nowhere.npy'"),
        (("fit", "broken.npy", "-o", "m"), "broken.npy cannot be read as vectors"),
        (("fit", "odd.npz", "-o", "m"), "vectors are floating-point numbers with two axes"),
        (("transform", "x.npy", "-m", "c", "--ids", "ids.txt", "-o", "z.npz"), "has 2 ids, and x.npy has 60 vectors"),
        (("transform", "x.npy", "-m", "c", "-o", "z.xlsx"), "z.xlsx ends in '.xlsx'; vectors are written to .npy"),
        (("transform", "x.npy", "-m", "two", "-o", "z.npy"), "a model of 2 parts"),
        (("transform", "x.npy", "-m", "nowhere", "-o", "z.npy"), "nowhere does not exist"),
        (("transform", "narrow.npy", "-m", "c", "-o", "z.npy"), "features"),
        (("transform", "x.npy", "-m", "c", "-o", "x.npy"), "x.npy"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, places, monkeypatch, args, sentence):
    monkeypatch.chdir(places)
    before = {file.name for file in places.iterdir()}
    code, out, err = run(*args)
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
    assert {file.name for file in places.iterdir()} == before
