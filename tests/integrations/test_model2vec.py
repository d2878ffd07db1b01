"""What is exported for sentence-transformers' StaticEmbedding is a folder that model2vec loads as its own."""

import numpy as np
import pytest

from bertflow import BertFlow

pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
model2vec = pytest.importorskip("model2vec", reason="needs pip install model2vec")


@pytest.mark.parametrize("recipe", ["static", "static-4"])
def test_model2vec_gives_our_directions(tiny_bert, sentences, tmp_path, recipe):
    from bertflow import to_sentence_transformer

    model = BertFlow.fit(sentences, tiny_bert, recipe=recipe, device="cpu")
    to_sentence_transformer(model).save_pretrained(str(tmp_path / "static"))
    theirs = model2vec.StaticModel.from_pretrained(str(tmp_path / "static"))
    found = theirs.encode(sentences[:20])  # its vectors are means of weighted rows: shorter, in the same direction
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, model.encode(sentences[:20], normalize_embeddings=True), atol=1e-5)
