"""Run MTEB offline on the graded pairs that ship with bertflow: the raw encoder against two recipes.

Any task of MTEB runs the same way: ``mteb.evaluate(MTEBEncoder(model), mteb.get_tasks([...]))``. Each model's revision is a
hash of its encoder and of what was fitted, so that MTEB's cache never mixes them up.

    pip install "bertflow[mteb]"
    python examples/run_mteb.py
"""

import tempfile

import mteb
import numpy as np

from bertflow import BertFlow, Encoder
from bertflow.data import sample_pairs, sample_sentences
from bertflow.evaluation import PairSet
from bertflow.integrations.mteb import MTEBEncoder
from bertflow.integrations.mteb_tasks import pairs_task

graded = [pair for pair in sample_pairs() if pair.kind == "graded"]
pairs = PairSet(
    [pair.sentence1 for pair in graded],
    [pair.sentence2 for pair in graded],
    np.array([pair.score for pair in graded]),
)
task = pairs_task("SamplePairs", pairs)

encoder = Encoder("mini")
sentences = sample_sentences()[:1000]
models = [encoder] + [BertFlow.fit(sentences, encoder, recipe=name) for name in ("whitening", "best")]

with tempfile.TemporaryDirectory() as folder:
    for model in models:
        wrapped = MTEBEncoder(model)
        result = mteb.evaluate(wrapped, task, cache=mteb.ResultCache(folder), show_progress_bar=False)
        meta, score = wrapped.mteb_model_meta, result.task_results[0].get_score()
        print(f"{meta.name:24} revision {meta.revision[:12]}  cosine_spearman {score:.4f}")
