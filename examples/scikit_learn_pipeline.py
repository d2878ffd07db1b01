"""From sentences to a classifier in scikit-learn, and whether calibration helps there: it depends on the classifier.

A linear classifier can undo an affine calibration, which then only changes what regularisation favours; neighbours by
cosine feel it directly. And what is good for meaning need not be good for topics: both are measured, with and without.

    pip install bertflow
    python examples/scikit_learn_pipeline.py
"""

import tempfile
from pathlib import Path

import joblib
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from bertflow import FlowCalibrator, SentenceVectors, Standardize, Whitening
from bertflow.data import sample_pairs, sample_sentences

# Sentences whose domain (news, cooking, sport…) is to be told, and unlabelled ones to fit the calibrators on.
pairs = sample_pairs()
sentences, domains = [pair.sentence1 for pair in pairs], [pair.domain for pair in pairs]
encode = SentenceVectors("mini", device="cpu").fit(sentences)
vectors, unlabelled = encode.transform(sentences), encode.transform(sample_sentences()[::4])

# Calibrators are transformers: fitted once on the unlabelled rows, frozen, and tried one by one as a step of a pipeline.
calibrators = [Standardize(), Whitening(), FlowCalibrator(random_state=0, device="cpu")]
steps = {"none": "passthrough"} | {type(c).__name__: FrozenEstimator(c.fit(unlabelled)) for c in calibrators}
classifiers = {
    "15 nearest neighbours by cosine": KNeighborsClassifier(15, metric="cosine"),
    "logistic regression": LogisticRegression(max_iter=1000),
}
for title, classifier in classifiers.items():
    pipeline = Pipeline([("calibrate", "passthrough"), ("classify", classifier)])
    search = GridSearchCV(pipeline, {"calibrate": list(steps.values())}, cv=3).fit(vectors, domains)
    print(f"{title}: accuracy over {len(set(domains))} domains, 3-fold")
    for name, accuracy in zip(steps, search.cv_results_["mean_test_score"], strict=True):
        print(f"  {name:15s} {accuracy:.3f}")
    print(f"  best here: {list(steps)[search.best_index_]}\n")

# How many levels should the flow have? The likelihood of held-out rows says so, without labels.
levels = GridSearchCV(FlowCalibrator(epochs=2, random_state=0, device="cpu"), {"levels": [1, 3]}, cv=2).fit(unlabelled)
print(
    f"held-out log-density per sentence by levels: {levels.cv_results_['mean_test_score'].round(1)}, best {levels.best_params_}"
)

# The whole way from text to label is one object. Stored, it holds the encoder's name and not its weights.
whole = make_pipeline(encode, steps["Standardize"], LogisticRegression(max_iter=1000)).fit(sentences, domains)
with tempfile.TemporaryDirectory() as folder:
    joblib.dump(whole, file := Path(folder) / "pipeline.joblib")
    print(
        f"stored in {file.stat().st_size / 1e6:.1f} MB; predicts",
        *joblib.load(file).predict(["The keeper saved a penalty."]),
    )
