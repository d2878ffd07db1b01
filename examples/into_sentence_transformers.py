"""A calibrated model as a SentenceTransformer: the same vectors, in every tool that opens one.

A recipe with one affine part (here: whitening; static too) becomes stock modules; a flow, or several parts as those of
best, become a module of ours.

    pip install "bertflow[sentence-transformers]"
    python examples/into_sentence_transformers.py
"""

import tempfile

import numpy as np
from sentence_transformers import SentenceTransformer

import bertflow
from bertflow import BertFlow, Encoder
from bertflow.data import sample_sentences

TEXTS = ["A boat lies in the harbour.", "A ship is moored at the quay.", "Nobody likes to wait for the bus."]


def show(title: str, model: SentenceTransformer, original: BertFlow) -> None:
    """Print the modules, the difference to bertflow's own vectors, and cosines."""
    vectors = model.encode(TEXTS)
    cosines = model.similarity(vectors[0], vectors[1:])[0]
    print(f"{title}: {' → '.join(type(module).__name__ for module in model)}, {vectors.shape[1]} dimensions")
    print(f"  largest difference: {np.abs(vectors - original.encode(TEXTS)).max():.0e}")
    print(f"  boat – ship: {cosines[0]:.2f}, boat – bus: {cosines[1]:.2f}")


encoder, sentences = Encoder("mini", device="cpu"), sample_sentences()[:1000]

with tempfile.TemporaryDirectory() as folder:
    # Whoever loads this one needs neither bertflow nor a flag.
    whitened = BertFlow.fit(sentences, encoder, recipe="whitening-64")
    bertflow.to_sentence_transformer(whitened).save_pretrained(f"{folder}/whitened")
    own = SentenceTransformer(f"{folder}/whitened", device="cpu")
    show("whitening", own, whitened)

    # Others take bertflow, and the flag that sentence-transformers wants for any class that is not its own.
    best = BertFlow.fit(sentences, encoder, recipe="best")
    bertflow.to_sentence_transformer(best).save_pretrained(f"{folder}/best")
    show("best", SentenceTransformer(f"{folder}/best", trust_remote_code=True, device="cpu"), best)

# The other way round: fit on any SentenceTransformer's vectors and put the calibrator on it, in memory, without a flag.
fitted = BertFlow.fit(sentences, encoder=own, recipe="sn")
show("attached", bertflow.attach(own, fitted), fitted)
