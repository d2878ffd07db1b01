"""Which recipe for your encoder and text, or none: estimated without labels, measured with some.

With real text, give a few thousand sentences; the answer may be to leave the vectors as they are.

    pip install bertflow
    python examples/advise.py
"""

import numpy as np

from bertflow import judge
from bertflow.data import sample_pairs, sample_sentences
from bertflow.evaluation import PairSet, PairTask

sentences = sample_sentences()[::3]
tried = ["natsv-1", "whitening", "best"]

print("Without labels, an estimate from the sentences alone:")
found = judge(sentences, "mini", recipes=tried)
print(f"  {found.headline}")
for option in found.ranking:
    print(f"    {option.recipe:<10} expected gain {option.gain.value:+.1f}")
print(f"  {found.command()}")

print("\nWith labelled pairs, measured by cross-validation. These are hard ones: negations, homonyms, swapped roles.")
graded = sample_pairs()
pairs = PairSet(
    [pair.sentence1 for pair in graded], [pair.sentence2 for pair in graded], np.array([pair.score for pair in graded])
)
found = judge(sentences, "mini", labels=PairTask("sample", "spearman", {"all": pairs}, []), recipes=tried)
print(f"  {found.headline}")
for reason in found.reasons:
    print(f"  {reason}")
