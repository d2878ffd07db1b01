"""The command `fit`: a new model from sentences, shards or vectors, or an old one adapted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.models import Column
from bertflow.cli.output import AsJson, Device, PoolingName, Quiet, Seed, print_json, say, start
from bertflow.cli.recipes import RecipeName, RemoteCode, recipe_of
from bertflow.errors import InputError
from bertflow.runtime.sessions import import_onnxruntime
from bertflow.storage.outputs import check_output_folder

if TYPE_CHECKING:
    from bertflow.model import BertFlow
    from bertflow.parts import Part


def fit(
    sentences: Annotated[
        str,
        typer.Argument(
            help="Unlabelled text: .txt (one a line), .jsonl, .csv, .tsv, .parquet, `-`; or raw shards; or vectors: .npy, "
            ".npz, .safetensors, .parquet."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model, or of vectors the calibrator.")],
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", "-e", help="`mini` (ships inside, default), a Hugging Face id, or a local folder."),
    ] = None,
    recipe: RecipeName = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--from", help="Adapt this model instead of fitting a new one: a folder, `mini-flow`, or a hub id."
        ),
    ] = None,
    pooling: PoolingName = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask the model with this, `'… {text} …'`; of a masked model with `{mask}` too. Several are averaged. Without "
            "--recipe: `prompt-half`."
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="The hidden state that a prompt is read from: -1 is the last (default).")
    ] = None,
    calibrator: Annotated[str | None, typer.Option(hidden=True, help="Deprecated: --recipe.")] = None,
    preset: Annotated[str | None, typer.Option(hidden=True, help="Deprecated: --recipe.")] = None,
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
    runtime: Annotated[
        str | None,
        typer.Option(help="`onnx`: put the encoder's graph into the folder, so that the model runs without torch."),
    ] = None,
    trust_remote_code: RemoteCode = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a recipe on your sentences, without labels, and save the model.

    A few thousand sentences like those to be compared later are enough:

        bertflow fit corpus.txt --encoder bert-base-uncased --output my-model
        bertflow fit corpus.txt --encoder bert-base-uncased --recipe flow-paper --output my-model

    Ask a decoder what a text means, in your words:

        bertflow fit corpus.txt --encoder HuggingFaceTB/SmolLM2-135M --prompt 'In one word, "{text}" is about "' -o my-model

    For text of any size, fit on shards, what `bertflow embed --raw` wrote:

        bertflow fit vectors --output my-model

    With only a few hundred sentences, adapt a model that was fitted on more:

        bertflow fit few.txt --from mini-flow --output my-model

    With vectors of your own, fit a calibrator alone:

        bertflow fit vectors.npy --recipe whitening-half --output my-calibrator
    """
    progress = start(quiet)
    chosen = recipe_of(recipe, calibrator, preset)
    if runtime not in (None, "onnx"):
        raise InputError(f"--runtime is onnx, or left out; it was {runtime!r}.")
    if runtime:
        import_onnxruntime()
    from bertflow.storage.shards import is_shards
    from bertflow.storage.vector_files import holds_vectors

    check_output_folder(output, [sentences, base, encoder])
    of_encoder: dict[str, Any] = {
        "--encoder": encoder,
        "--pooling": pooling,
        "--max-length": max_length,
        "--from": base,
    }
    of_encoder |= {"--prompt": prompt or None, "--layer": layer}
    settings: dict[str, Any] = {"seed": seed, "device": device, "progress": progress}
    if is_shards(sentences):
        _refuse(of_encoder | {"--column": column}, f"{sentences} holds shards, which have their encoder")
        model = _on_shards(sentences, chosen, rows, **settings)
    elif holds_vectors(sentences, column):
        extra = {"--bundle-encoder": bundle_encoder or None, "--runtime": runtime}
        _refuse(of_encoder | extra, f"{sentences} holds vectors, and a calibrator alone is fitted on them")
        _on_vectors(sentences, output, chosen, column, as_json, **settings)
        return
    elif base:
        fixed = of_encoder | {"--from": None, "--recipe": chosen}
        _refuse(fixed, f"{base} has its encoder and its recipe")
        model = _adapt(base, _texts(sentences, column), **settings)
    else:
        options = {"max_length": max_length} | ({"trust_remote_code": True} if trust_remote_code else {})
        asked = {"template": prompt or None, "layer": layer}
        model = _on_text(sentences, column, encoder or "mini", pooling, chosen, asked, options, **settings)
    saved = model.save_pretrained(output, bundle_encoder=bundle_encoder, runtime=runtime)
    if as_json:
        known = {"recipe": model.recipe, "encoder": model.encoder.describe(), "training": model.training}
        print_json({"saved": str(saved), **known})
    else:
        _show_fit(sentences, str(saved), model)
        if sentences != "-" and not is_shards(sentences):
            _show_judgement(model, _texts(sentences, column))


def _texts(sentences: str, column: str | None) -> list[str]:
    from bertflow.storage.text_files import read_sentences

    return read_sentences(sentences, column)


def _on_text(
    sentences: str,
    column: str | None,
    encoder: str,
    pooling: str | None,
    recipe: str | None,
    asked: dict[str, Any],
    options: dict[str, Any],
    *,
    seed: int,
    device: str | None,
    progress: bool,
) -> BertFlow:
    what: dict[str, Any] = {"recipe": recipe}
    if any(value is not None for value in asked.values()):
        what, pooling = {"parts": _prompted(recipe or "prompt-half", pooling, seed, **asked)}, None
    texts = _texts(sentences, column)
    from bertflow.model import BertFlow

    settings: dict[str, Any] = {"random_state": seed, "device": device, "show_progress_bar": progress}
    return BertFlow.fit(texts, encoder, pooling, **what, **settings, **options)


def _prompted(recipe: str, pooling: str | None, seed: int, **asked: Any) -> list[Part]:
    """Return the parts of a recipe with the user's own prompts."""
    from bertflow.encoders.prompts import ask
    from bertflow.recipes import make_parts

    parts = make_parts(recipe, pooling, random_state=seed)
    ask([part.view for part in parts], **asked)
    return parts


def _adapt(base: str, texts: list[str], *, seed: int, device: str | None, progress: bool) -> BertFlow:
    from bertflow.model import BertFlow

    model = BertFlow.from_pretrained(base, device=device)
    for part in model.parts:
        known = part.calibrator.get_params()
        wanted = {"random_state": seed, "verbose": progress}
        part.calibrator.set_params(**{name: value for name, value in wanted.items() if name in known})
    return model.partial_fit(texts, show_progress_bar=progress)


def _on_shards(
    folder: str, recipe: str | None, rows: str, *, seed: int, device: str | None, progress: bool
) -> BertFlow:
    if rows != "all" and not (rows.isdigit() and int(rows) > 1):
        raise InputError(f"--rows takes a number from 2 on, or `all`; {rows!r} was given.")
    from bertflow.scale import fit_shards
    from bertflow.storage.shards import Shards

    number = None if rows == "all" else int(rows)
    settings: dict[str, Any] = {"random_state": seed, "device": device, "show_progress_bar": progress}
    return fit_shards(Shards(folder), recipe, rows=number, **settings)


def _on_vectors(
    file: str,
    output: Path,
    recipe: str | None,
    column: str | None,
    as_json: bool,
    *,
    seed: int,
    device: str | None,
    progress: bool,
) -> None:
    from bertflow.arrays import as_matrix
    from bertflow.recipes import DEFAULT_OF_ONE_VIEW, calibrator_of
    from bertflow.storage.vector_files import read_vectors

    name = recipe or DEFAULT_OF_ONE_VIEW
    calibrator = calibrator_of(name, random_state=seed, device=device, verbose=progress)
    vectors = as_matrix(read_vectors(file, column), file, min_rows=2)
    saved = calibrator.fit(vectors).save_pretrained(output)
    if as_json:
        print_json({"saved": str(saved), "recipe": name, "rows": len(vectors), "dim": calibrator.dim})
        return
    say(f"Fitted {escape(name)} on {len(vectors)} vectors. Saved to [bold]{escape(str(saved))}[/]. Next:")
    say(f"  bertflow transform {escape(file)} -m {escape(str(saved))} -o calibrated.npy")


def _show_fit(sentences: str, saved: str, model: BertFlow) -> None:
    training = model.training
    on_shards = "vectors" in training
    what = f"{training['fitted_vectors']} vectors" if on_shards else f"{training['sentences']} different sentences"
    adapted = "earlier_sentences" in training
    recipe = f"Fitted {model.recipe} on" if model.recipe else "Fitted on"
    say(f"{recipe} {what}" + (f", after {training['earlier_sentences']} earlier ones." if adapted else "."))
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


def _show_judgement(model: BertFlow, texts: list[str]) -> None:
    """Say what to expect of the model, from what came of others."""
    from bertflow.evaluation.judgement import judge_model

    say(
        f"\n{escape(judge_model(model, texts).headline)} `bertflow advise` says more, and measures it with your own pairs."
    )


def _refuse(given: dict[str, Any], why: str) -> None:
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        raise InputError(f"{why}; leave out {', '.join(extra)}.")
