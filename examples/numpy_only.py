"""Apply a fitted flow with numpy alone, in a process where torch cannot be imported.

For a service that gets its sentence vectors from elsewhere (a database, an API) and only has to calibrate them::

    pip install numpy safetensors
    pip install --no-deps bertflow

Here, where the flow is fitted as well::

    pip install bertflow
    python examples/numpy_only.py
"""

import subprocess
import sys
import tempfile

import numpy as np

from bertflow import BertFlow
from bertflow.data import sample_sentences

SERVICE = """
import sys, time

for absent in ("torch", "transformers", "sklearn", "scipy", "yaml", "huggingface_hub"):
    sys.modules[absent] = None  # importing it fails, as if it were not installed

import numpy as np
from bertflow.runtime.portable import load_calibrator

calibrator = load_calibrator(sys.argv[1] + "/model")
vectors = np.load(sys.argv[1] + "/vectors.npy")
start = time.perf_counter()
latents = calibrator.transform(vectors)
print(f"{calibrator}: {len(vectors)} vectors in {1000 * (time.perf_counter() - start):.0f} ms, with numpy alone")
np.save(sys.argv[1] + "/latents.npy", latents)
"""

with tempfile.TemporaryDirectory() as folder:
    sentences = sample_sentences()[:1000]
    model = BertFlow.fit(sentences, encoder="mini", recipe="flow")
    model.save_pretrained(f"{folder}/model")
    vectors = model.encoder.encode(sentences)
    np.save(f"{folder}/vectors.npy", vectors)

    subprocess.run([sys.executable, "-c", SERVICE, folder], check=True)

    difference = np.abs(np.load(f"{folder}/latents.npy") - model.calibrator.transform(vectors)).max()
    print(f"Largest difference from torch: {difference:.0e}")
