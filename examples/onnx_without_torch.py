"""Export a model to ONNX, then encode with it in a process where torch cannot be imported.

The export needs torch; what it writes needs onnxruntime, tokenizers and numpy alone. On the machine that serves it::

    pip install onnxruntime tokenizers
    pip install --no-deps bertflow

Here, where both happen on one machine::

    pip install "bertflow[onnx]"
    python examples/onnx_without_torch.py
"""

import subprocess
import sys
import tempfile

from bertflow import BertFlow
from bertflow.data import sample_sentences
from bertflow.integrations.onnx import export_onnx

SERVICE = """
import sys, time

for heavy in ("torch", "transformers", "sklearn", "scipy"):
    sys.modules[heavy] = None  # importing it fails, as if it were not installed

start = time.perf_counter()
from bertflow import OnnxModel

model = OnnxModel.from_pretrained(sys.argv[1])
print(f"  {model}, ready after {time.perf_counter() - start:.1f} s")
print(f"  one vector: {model.encode('How do I embed one sentence?').shape}")
for a, b in [("A man is eating.", "Someone has lunch."), ("A man is eating.", "The bank raised its rates.")]:
    print(f"  {model.similarity(a, b):+.3f}  {a} | {b}")
"""

model = BertFlow.fit(sample_sentences()[:1000], encoder="mini", recipe="whitening")

with tempfile.TemporaryDirectory() as folder:
    result = export_onnx(model, f"{folder}/onnx-model")
    print(
        f"Exported {result.megabytes:.0f} MB; largest difference from PyTorch: {result.difference:.0e} of a vector's length."
    )
    print("A service without torch:", flush=True)
    subprocess.run([sys.executable, "-c", SERVICE, result.folder], check=True)
    print(f"The same with torch:\n  {model.similarity('A man is eating.', 'Someone has lunch.'):+.3f}")
