"""The command `fit`: a new model from sentences or shards, or an old one adapted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.models import Column
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, Seed, print_json, say, start
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.calibrators import Calibrator
    from bertflow.model import BertFlow


def fit(
    sentences: Annotated[
        str,
        typer.Argument(help="Unlabelled text: .txt (one a line), .jsonl, .csv, .tsv, .parquet, `-`; or raw shards."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")],
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", "-e", help="`mini` (ships inside, default), a Hugging Face id, or a local folder."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--from", help="Adapt this model instead of fitting a new one: a folder, `mini-flow`, or a hub id."
        ),
    ] = None,
    pooling: PoolingName = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            help="`flow` (default), `whitening`, `whitening-128`, `sn`, `natsv-10`…: as in `bertflow compare`."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="`default` (fast), `paper` (the paper's schedule), `static` or `best` (beyond the paper)."),
    ] = None,
    column: Column = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens read of each text; default: what the model allows.")
    ] = None,
    rows: Annotated[
        str, typer.Option(help="Of shards: rows in the flow's sample, or `all`. Whitening and its kin see all.")
    ] = "200000",
    bundle_encoder: Annotated[
        bool, typer.Option("--bundle-encoder", help="Put the encoder's weights into the folder.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a flow on your sentences, without labels, and save the model.

    A few thousand sentences like those to be compared later are enough; for text of any size, fit on shards:

        bertflow fit corpus.txt --encoder bert-base-uncased --output my-model
        bertflow fit vectors --output my-model    # what `bertflow embed --raw` wrote

    With only a few hundred sentences, adapt a model that was fitted on more:

        bertflow fit few.txt --from mini-flow --output my-model

    For a language model that was never tuned for similarity, go beyond the paper:

        bertflow fit corpus.txt --encoder bert-base-uncased --preset best --output my-model
    """
    progress = start(quiet)
    from bertflow.encoders.joined import TOKEN_PRESETS
    from bertflow.storage.shards import is_shards

    of_encoder = {"--encoder": encoder, "--pooling": pooling, "--max-length": max_length}
    from_tokens = preset in TOKEN_PRESETS
    if is_shards(sentences):
        _refuse(of_encoder | {"--column": column}, f"{sentences} holds shards, which have their encoder")
        _refuse({"--from": base}, f"{sentences} holds shards, and a model is adapted to text")
        _refuse(
            {f"--preset {preset}": from_tokens or None}, f"{sentences} holds vectors, and that preset needs the text"
        )
        chosen = _calibrator(calibrator, preset, seed, device, progress)
        saved, config = _fit_on_shards(sentences, output, chosen, rows, seed, progress)
        if bundle_encoder:
            _bundle(saved, device)
    else:
        from bertflow.model import BertFlow
        from bertflow.storage.text_files import read_sentences

        texts = read_sentences(sentences, column)
        if base:
            fixed = of_encoder | {"--calibrator": calibrator, "--preset": preset}
            _refuse(fixed, f"{base} has its encoder and its calibrator")
            model = _adapt(base, texts, seed, device, progress)
        else:
            brought = from_tokens and not calibrator  # by the preset
            model = BertFlow.fit(
                texts,
                encoder or "mini",
                pooling,
                preset or "default",
                calibrator=None if brought else _calibrator(calibrator, preset, seed, device, progress),
                random_state=seed,
                show_progress_bar=progress,
                max_length=max_length,
                device=device,
            )
        saved = model.save_pretrained(output, bundle_encoder=bundle_encoder)
        config = {"encoder": model.encoder.describe(), "training": model.training}
    if as_json:
        print_json({"saved": str(saved), **config})
    else:
        _show_fit(sentences, str(saved), config["training"])


def _calibrator(name: str | None, preset: str | None, seed: int, device: str | None, progress: bool) -> Calibrator:
    from bertflow.calibrators import FlowCalibrator
    from bertflow.calibrators.names import make_calibrator

    chosen = make_calibrator(name or "flow", seed)
    if isinstance(chosen, FlowCalibrator):
        chosen.set_params(device=device, verbose=progress)
        if name in (None, "flow"):
            chosen.set_params(preset=preset or "default")
    return chosen


def _adapt(base: str, texts: list[str], seed: int, device: str | None, progress: bool) -> BertFlow:
    from bertflow.calibrators import FlowCalibrator
    from bertflow.model import BertFlow

    model = BertFlow.from_pretrained(base, device=device)
    if isinstance(model.calibrator, FlowCalibrator):
        model.calibrator.set_params(random_state=seed, verbose=progress)
    return model.partial_fit(texts, show_progress_bar=progress)


def _show_fit(sentences: str, saved: str, training: dict[str, Any]) -> None:
    on_shards = "fitted_vectors" in training
    what = f"{training['fitted_vectors']} vectors" if on_shards else f"{training['sentences']} different sentences"
    adapted = "earlier_sentences" in training
    say(f"Fitted on {what}" + (f", after {training['earlier_sentences']} earlier ones." if adapted else "."))
    if adapted and training.get("best_step") == 0:
        say("The flow stayed as it was: unseen ones of these sentences would have become less likely.")
    elif adapted and training.get("validation_bits_per_dim") is not None:
        say(f"{training['validation_bits_per_dim']:.3f} bits/dim on the sentences that were held out to watch it.")
    elif "bits_per_dim" in training:
        bits = training["bits_per_dim"]
        say(f"{bits:.3f} bits/dim after {training['steps']} steps (below zero is normal: it is a density).")
    say(f"Saved to [bold]{escape(saved)}[/]. Next:")
    if on_shards:
        say(f"  bertflow transform {escape(sentences)} -m {escape(saved)} -o calibrated-vectors")
    else:
        say(f"  bertflow embed {escape(sentences)} -m {escape(saved)} -o vectors.npy")


def _fit_on_shards(
    folder: str, output: Path, calibrator: Calibrator, rows: str, seed: int, progress: bool
) -> tuple[Path, dict[str, Any]]:
    """The encoder itself is not needed, so that fitting can run where it is not: its description goes into the model."""
    from bertflow.scale import fit_shards
    from bertflow.storage import model_folder
    from bertflow.storage.shards import Shards

    if rows != "all" and not rows.isdigit():
        raise InputError(f"--rows takes a number or `all`; {rows!r} was given.")
    shards = Shards(folder)
    number = None if rows == "all" else int(rows)
    fitted, training = fit_shards(shards, calibrator, rows=number, random_state=seed, show_progress_bar=progress)
    settings, arrays = fitted.get_state()
    config = {"encoder": shards.manifest.encoder, "training": training}
    return model_folder.save(output, {**config, "calibrator": settings, "results": [], "card": {}}, arrays), config


def _bundle(saved: Path, device: str | None) -> None:
    from bertflow.model import BertFlow

    BertFlow.from_pretrained(saved, device=device).save_pretrained(saved, bundle_encoder=True)


def _refuse(given: dict[str, Any], why: str) -> None:
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        raise InputError(f"{why}; leave out {', '.join(extra)}.")
