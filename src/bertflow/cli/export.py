"""The commands that hand a model to other tools: export onnx, export sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Quiet, print_json, say, start
from bertflow.errors import ModelFolderError

if TYPE_CHECKING:
    from bertflow.integrations.onnx import OnnxExport

export = typer.Typer(
    help="Write a model for other tools: `onnx` (runs without torch) or `sentence-transformers`.", no_args_is_help=True
)

Model = Annotated[str, typer.Argument(help="A folder that `bertflow fit` wrote, or a hub id.")]
Output = Annotated[Path, typer.Argument(help="Folder to write.")]


@export.command()
def onnx(
    model: Model,
    output: Output,
    calibrator_only: Annotated[
        bool, typer.Option("--calibrator-only", help="Vectors in, calibrated vectors out; without the transformer.")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="A quarter of the size; what it costs is measured and shown.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(help="Largest difference from PyTorch to accept, as a share of a vector's length.")
    ] = 1e-4,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write text-to-vector as one ONNX file, for a model of any recipe, checked against PyTorch; needs no torch to run.

    bertflow export onnx my-model my-onnx-model
    """
    start(quiet)
    from bertflow.calibrators import Calibrator
    from bertflow.integrations.onnx import export_onnx
    from bertflow.model import BertFlow

    load = Calibrator.from_pretrained if calibrator_only else BertFlow.from_pretrained
    result = export_onnx(load(model, device="cpu"), output, int8=int8, tolerance=tolerance)
    if as_json:
        print_json(result.to_dict())
    else:
        _show_onnx(result)


def _show_onnx(result: OnnxExport) -> None:
    say(f"Wrote [bold]{escape(result.folder)}[/] ({result.megabytes:.1f} MB).")
    say(f"Largest difference from PyTorch: {result.difference:.0e} of a vector's length.")
    if result.int8:
        loss = result.int8
        say(
            f"Eight bits cost: cosine with float32 {loss.mean_cosine:.4f} on average, {loss.least_cosine:.4f} at least; "
            f"Spearman ×100 on the shipped pairs {loss.spearman_float32:.2f} → {loss.spearman_int8:.2f}."
        )
    name, packages = ("OnnxModel", " tokenizers") if result.kind == "text" else ("OnnxCalibrator", "")
    say(f"Run it, also where there is no torch (pip install onnxruntime{packages}; pip install --no-deps bertflow):")
    say(f"  from bertflow import {name}")
    say(f"  {name}.from_pretrained({escape(repr(result.folder))})")


@export.command("sentence-transformers")
def sentence_transformers(model: Model, output: Output, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write a folder that `SentenceTransformer` loads, of a model of any recipe.

    bertflow export sentence-transformers my-model my-st-model
    """
    start(quiet)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ModelFolderError(f"{output} exists; nothing was written. Give another folder or remove this one.")
    from bertflow.encoders.pretrained import quiet_transformers
    from bertflow.integrations.sentence_transformers import to_sentence_transformer
    from bertflow.model import BertFlow
    from bertflow.storage.atomic import atomic_folder

    loaded = BertFlow.from_pretrained(model)
    converted = to_sentence_transformer(loaded)
    with atomic_folder(output) as temporary, quiet_transformers():
        converted.save_pretrained(str(temporary))
    ours = any(type(module).__module__.startswith("bertflow") for module in converted)
    if as_json:
        print_json({"folder": str(output), "trust_remote_code": ours, "dim": loaded.dim})
        return
    flag = ", trust_remote_code=True" if ours else ""
    say(f"Wrote [bold]{escape(str(output))}[/]. Load it, {'with' if ours else 'even without'} bertflow installed:")
    say("  from sentence_transformers import SentenceTransformer")
    say(f"  SentenceTransformer({escape(repr(str(output)))}{flag})")
