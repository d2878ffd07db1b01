"""Which pooling and calibrator for your encoder and text, or none: estimated without labels, measured with some.

With real text, give a few thousand sentences; the advice may be to leave the vectors as they are.

    pip install bertflow
    python examples/advise.py
"""

import numpy as np

from bertflow import advise
from bertflow.data import sample_pairs, sample_sentences
from bertflow.evaluation import PairSet, PairTask

sentences = sample_sentences()[::3]
tried = {"poolings": ["mean", "embedding-last-avg"], "calibrators": ["natsv-1", "whitening", "flow"]}

print("Without labels, an estimate from the sentences alone:")
advice = advise(sentences, "mini", **tried)
print(f"  {advice.headline}")
for option in advice.options[:3]:
    print(f"    {option.candidate!s:<32} expected gain {option.gain:+.1f}")
print(f"  {advice.command()}")

print("\nWith labelled pairs, measured by cross-validation. These are hard ones: negations, homonyms, swapped roles.")
graded = sample_pairs()
pairs = PairSet(
    [pair.sentence1 for pair in graded], [pair.sentence2 for pair in graded], np.array([pair.score for pair in graded])
)
advice = advise(sentences, "mini", PairTask("sample", "spearman", {"all": pairs}, []), **tried)
print(f"  {advice.headline}")
for reason in advice.reasons:
    print(f"  {reason}")
