"""Save a model with measured results in its card, and share it on the Hugging Face hub.

Runs offline: it saves to a temporary folder and shows the card. With a repository to write to (and `hf auth login` before),
it pushes.

    pip install bertflow
    python examples/share_on_the_hub.py [you/my-model]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from huggingface_hub import ModelCard

from bertflow import BertFlow, Calibrator, Whitening
from bertflow.data import sample_pairs, sample_sentences
from bertflow.evaluation import PairSet, PairTask, evaluate_task

model = BertFlow.fit(sample_sentences()[::4], encoder="mini", recipe="whitening", device="cpu")

# Measure, and keep what was measured. In a terminal: bertflow evaluate -m my-model --pairs my-pairs.tsv --save-results
pairs = sample_pairs()
gold = np.array([pair.score for pair in pairs])
pair_set = PairSet([pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs], gold)
task = PairTask("bertflow sample pairs", "spearman", {"all": pair_set}, fit_sentences=[])
model.add_result(task.name, evaluate_task(task, model.encode), split=None)
model.card["license"] = "apache-2.0"  # only you can know it

with tempfile.TemporaryDirectory() as room:
    folder = model.save_pretrained(Path(room) / "my-model")
    print((folder / "README.md").read_text(encoding="utf-8"))
    (result,) = ModelCard.load(folder / "README.md").data.eval_results  # as the hub reads it
    print(f"The hub will show: {result.dataset_name}, {result.metric_name}: {result.metric_value:.2f}")
    assert BertFlow.from_pretrained(folder, device="cpu").results == model.results

    # A calibrator alone goes the same way.
    whitening = Whitening().fit(model.encoder.encode(sample_sentences()[:100]))
    whitening.save_pretrained(Path(room) / "my-whitening")
    print(f"Loaded again: {Calibrator.from_pretrained(Path(room) / 'my-whitening')}")

if len(sys.argv) > 1:  # in a terminal: bertflow push my-model you/my-model
    print("Pushed:", model.push_to_hub(sys.argv[1], private=True))
else:
    print("Not pushed: name a repository, such as you/my-model, to do so.")
