"""Search a text file by meaning, and see what fewer dimensions cost.

A model of one affine part lives inside the FAISS index: raw vectors go in, calibrated cosine search comes out. Any other
recipe works too; then its model calibrates before.

    pip install "bertflow[faiss]"
    python examples/search_with_faiss.py
"""

import tempfile
from pathlib import Path

from bertflow import BertFlow, Encoder
from bertflow.data import sample_sentences
from bertflow.integrations.faiss import SearchIndex, build_index, calibrated_index

texts = sample_sentences()[:800]
encoder = Encoder("mini")
model = BertFlow.fit(texts, encoder, recipe="whitening")

# Texts in, texts out; the folder holds the index, the texts and the model.
with tempfile.TemporaryDirectory() as folder:
    build_index(model, texts).save(Path(folder) / "index")
    index = SearchIndex.load(Path(folder) / "index")
    result = index.search("How long does a sprained ankle stay swollen?", k=3)
    for hit in result.hits[0]:
        print(f"{hit.rank}. {hit.cosine:.2f}  {hit.text}")
    print(f"{1000 * result.encode_seconds:.1f} ms to encode, {1000 * result.search_seconds:.1f} ms to search\n")

# Whitening orders its dimensions by variance, so that the last ones can be left out; the cost is measured.
for dimension in (128, 64):
    report = build_index(model, texts, dimension=dimension).report
    print(f"{dimension} of 256 dimensions: recall@10 against all of them {report['recall']:.2f}")

# With vectors and an index of your own: the calibrator as a part of the FAISS index.
vectors = encoder.encode(texts[:200])
own = calibrated_index(model.calibrator, factory="HNSW32")
own.add(vectors)
cosines, rows = own.search(vectors[:1], 3)
print(f"\nRaw vectors in, calibrated neighbours of row 0 out: rows {rows[0].tolist()}")
