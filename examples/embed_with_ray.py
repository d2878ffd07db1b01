"""Embed text files by a cluster: Ray starts a worker for each core or GPU, and parquet files come out.

Here the cluster is this machine; on a real one, give ``address="auto"`` and folders that all machines see.

    pip install "bertflow[ray]"
    python examples/embed_with_ray.py
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet

from bertflow import BertFlow
from bertflow.data import sample_sentences
from bertflow.integrations.ray import embed

if __name__ == "__main__":
    sentences = sample_sentences()[:600]
    model = BertFlow.fit(sentences, "mini", recipe="whitening")

    with tempfile.TemporaryDirectory() as room:
        corpus, vectors = Path(room) / "corpus", Path(room) / "vectors"
        corpus.mkdir()
        for number in range(3):
            lines = sentences[200 * number : 200 * (number + 1)]
            (corpus / f"part-{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

        # The model's files travel to the workers; each loads it once. A worker that dies is replaced, its work done again.
        print(embed(corpus, vectors, model, address="local", concurrency=2))

        # Rows come in any order and say where they are from; any tool that reads parquet reads them.
        rows = pyarrow.parquet.read_table(vectors).sort_by([("source", "ascending"), ("line", "ascending")]).to_pylist()
    first = rows[0]
    print(f"{Path(first['source']).name}, line {first['line']}: {first['text']}")

    alone = model.encode([row["text"] for row in rows])
    difference = np.abs(np.array([row["embedding"] for row in rows]) - alone).max()
    print(f"{len(rows)} rows; largest difference from one process: {difference:.0e}")
