"""The only module that knows the disk format and the hub: config.json + model.safetensors + README.md [+ encoder/].

Reading a folder needs numpy and safetensors alone, for readers without torch; the rest is imported where it is used.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from bertflow.data import MINI, MINI_VERSION, shipped_model
from bertflow.errors import BertflowError, ModelFolderError
from bertflow.storage.atomic import atomic_file, atomic_folder, recover
from bertflow.storage.cards import Result, is_hub_id, merged, model_card, renewed
from bertflow.storage.checksums import SEAL, check_seal, checksum, sealed, verify
from bertflow.storage.version_1 import upgraded
from bertflow.version import __version__

if TYPE_CHECKING:
    from bertflow.arrays import Matrix

FORMAT = "bertflow"
FORMAT_VERSION = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
ENCODER, PARTS, GRAPH = "encoder", "parts", "graph"  # rooms
FREE = ("training", "results", "card")  # entries of config.json that change no vector
AGAIN = "copy the whole folder again, or fit the model again"


def save(
    folder: str | Path,
    config: dict[str, Any],
    arrays: dict[str, Matrix],
    write_views: Callable[[Path], None] | None = None,
    write_encoder: Callable[[Path], None] | None = None,
    write_graph: Callable[[Path], None] | None = None,
) -> Path:
    """Write a model folder whole or not at all.

    Args:
        folder: Where; an earlier bertflow model there is replaced, anything else is left alone and refused.
        config: Settings as JSON: ``encoder``, ``parts``, ``training``, ``results``, ``card``; or ``calibrator`` alone.
        arrays: The calibrators' arrays; those of part i begin with ``i.``.
        write_views: Writes what the views learnt into the folder it is given, below ``parts``.
        write_encoder: Writes the encoder into the folder it is given, to bundle it.
        write_graph: Writes the encoder's ONNX graph into the folder it is given, to run it without torch.
    """
    target = Path(folder)
    refuse_foreign(target)
    # safetensors writes the memory as it lies: a transposed array would come back scrambled
    straight = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with atomic_folder(target) as temporary:
        if write_encoder:
            write_encoder(temporary / ENCODER)
        if write_graph:
            write_graph(temporary / GRAPH)
        if write_views:
            write_views(temporary)
        (temporary / WEIGHTS).write_bytes(safetensors.numpy.save(straight, metadata={"format": FORMAT}))
        written = (file for room in (PARTS, ENCODER, GRAPH) for file in (temporary / room).rglob("*"))
        files = [temporary / WEIGHTS, *sorted(file for file in written if file.is_file())]
        head = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "bertflow_version": __version__,
            "sha256": {file.relative_to(temporary).as_posix(): checksum(file) for file in files},
            "bundled_encoder": write_encoder is not None,
        }
        (temporary / CONFIG).write_text(_as_json(sealed(head | config, FREE)), encoding="utf-8")
        (temporary / CARD).write_text(model_card(config, target.name), encoding="utf-8")
    return target


def refuse_foreign(folder: Path) -> None:
    """Raise where a folder holds something that is not a bertflow model."""
    if folder.exists() and not _is_ours(folder):
        raise ModelFolderError(
            f"{folder} exists and is not a bertflow model; nothing was written. Give another folder or empty this one."
        )


def load(folder: str | Path) -> tuple[dict[str, Any], dict[str, Matrix]]:
    """Read (config, arrays) of a model folder, refusing with a sentence what is damaged, foreign or newer.

    What version 0.1 wrote comes back in today's form.
    """
    folder = Path(folder)
    config = load_config(folder)
    for name, known in _checksums(config).items():
        verify(folder / name, known, AGAIN)
    try:
        arrays = safetensors.numpy.load((folder / WEIGHTS).read_bytes())
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelFolderError(f"{folder / WEIGHTS} is not a safetensors file ({error}): {AGAIN}.") from None
    with consistent(folder):
        return upgraded(config, arrays) if config["format_version"] == 1 else (config, arrays)


def _checksums(config: dict[str, Any]) -> dict[str, str]:
    """Names of a folder's files and their SHA-256, the weights always among them; never a path that leaves the folder."""
    known = config.get("sha256")
    files = known if isinstance(known, dict) else {}
    files = {WEIGHTS: config.get("weights_sha256"), **files}
    outside = [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ModelFolderError(f"{CONFIG} names a file outside its folder, {outside[0]!r}: do not trust this folder.")
    return files


def view_folder(folder: str | Path, config: dict[str, Any], part: int) -> Path:
    """Return where the view of a part keeps what it learnt."""
    place = config["parts"][part].get("folder") if config["format_version"] == 1 else None
    return Path(folder) / (place or f"{PARTS}/{part}")


def arrays_of_part(arrays: dict[str, Matrix], part: int) -> dict[str, Matrix]:
    """Return the arrays of one part's calibrator, under their own names."""
    head = f"{part}."
    return {name.removeprefix(head): array for name, array in arrays.items() if name.startswith(head)}


def refuse_arrays_of_no_part(config: dict[str, Any], arrays: dict[str, Matrix]) -> None:
    """Raise where there are arrays that belong to no part."""
    heads = tuple(f"{i}." for i in range(len(config["parts"])))
    odd = [name for name in arrays if not name.startswith(heads)]
    if odd:
        raise ModelFolderError(f"Array {odd[0]!r} is of none of its parts.")


def load_config(folder: str | Path) -> dict[str, Any]:
    """Read and check a model folder's config.json."""
    recover(folder)
    path = Path(folder) / CONFIG
    if not path.is_file():
        what = "holds no config.json" if Path(folder).is_dir() else "does not exist"
        raise ModelFolderError(f"{folder} {what}: it is not a bertflow model. `bertflow fit` makes one.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged ({error}): {AGAIN}.") from None
    if isinstance(config, dict) and config.get("format") == "bertflow-onnx":
        raise ModelFolderError(f"{folder} is a model for onnxruntime: open it with bertflow.OnnxModel.from_pretrained.")
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        kind = config.get("model_type", "another program") if isinstance(config, dict) else "another program"
        raise ModelFolderError(
            f"{path} was not written by bertflow but by {kind}. To fit a flow on that model: "
            f"BertFlow.fit(sentences, encoder={str(folder)!r})."
        )
    version = config.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFolderError(
            f"{path} has format version {version!r:.40}, written by bertflow {config.get('bertflow_version')!s:.40}; this is "
            f"bertflow {__version__}, which reads up to {FORMAT_VERSION}. Run  pip install --upgrade bertflow"
        )
    if version > 1 or SEAL in config:
        check_seal(config, path, AGAIN, free=FREE)
    return config


def locate(path_or_id: str | Path, **hub: Any) -> Path:
    """Return the local folder of a model, downloading it from the Hugging Face hub when it is an id.

    Args:
        path_or_id: A folder, a model that ships inside such as ``"mini-flow"``, or an id such as
            ``"someone/bert-base-uncased-flow"``.
        hub: ``revision``, ``token``, ``cache_dir``, ``local_files_only``, ``force_download``.
    """
    folder = Path(path_or_id)
    recover(folder)
    text = str(path_or_id)
    if not folder.is_dir() and (shipped := shipped_model(text)):
        return shipped
    if folder.is_dir() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(text, **hub))
    except Exception as error:  # the hub client raises many kinds, offline alone gives four
        raise ModelFolderError(
            f"{text!r} is not a folder here and could not be had from the Hugging Face hub (offline, misspelt or private?): "
            f"{_first_line(error)}"
        ) from error


@contextmanager
def consistent(folder: Path) -> Iterator[None]:
    """Say of a folder whose files are there but do not fit together that it is damaged, and what to do."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, BertflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelFolderError(
            f"{folder / CONFIG} and {WEIGHTS} beside it do not make a model ({what}): copy the whole folder again, or fit "
            "the model again."
        ) from error


def add_results(folder: str | Path, results: Iterable[Result]) -> list[Result]:
    """Write measured results into a saved model's config.json and model card; return all that are there now.

    Args:
        folder: A model's folder. Text that someone wrote into its card stays.
        results: See ``bertflow.storage.cards``; one measured in the same way as an earlier one replaces it.
    """
    folder = Path(folder)
    old = load_config(folder)
    with consistent(folder):
        known = merged(old.get("results", ()), ())
    new = old | {"results": merged(known, results)}
    with consistent(folder):
        card = _renewed_card(folder, old, new)
    _rewrite(folder / CARD, card)
    _rewrite(folder / CONFIG, _as_json(new))
    return new["results"]


def push(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str | None = None,
    branch: str | None = None,
    create_pr: bool = False,
) -> str:
    """Upload a saved model or calibrator to the Hugging Face hub in one commit; return the commit's address.

    Args:
        folder: What ``save_pretrained`` wrote; its card will name ``repo_id`` as what to load.
        repo_id: Such as ``"someone/bert-base-uncased-flow"``; made if it is not there.
        private: Whether a new repository is for its owner only; default: as the owner's account says.
        token: Default: that of `hf auth login` or ``HF_TOKEN``.
        commit_message: Default: which version of bertflow wrote the model.
        branch: Default: ``main``.
        create_pr: Open a pull request instead of committing.
    """
    from huggingface_hub import HfApi, get_token

    folder = Path(folder)
    config, _ = load(folder)
    links = sorted(path.name for path in folder.rglob("*") if path.is_symlink())
    if links:
        raise ModelFolderError(
            f"{folder / links[0]} is a link, and what it leads to would be published: copy the folder with its files first."
        )
    _warn_of_an_encoder_that_others_lack(config)
    message = commit_message or f"Model of bertflow {config['bertflow_version']}"
    try:
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        _rewrite(folder / CARD, _renewed_card(folder, config, config, repo_id))
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message=message,
            revision=branch,
            create_pr=create_pr,
            delete_patterns=[f"{ENCODER}/*", f"{GRAPH}/*"],  # of an earlier push that brought them
        )
    except Exception as error:  # the hub client raises many kinds
        why = (
            "offline, misspelt, or not yours to write to?"
            if token or get_token()
            else ("no access token was found: run  hf auth login  or set HF_TOKEN")
        )
        raise ModelFolderError(f"The model could not be pushed to {repo_id!r} ({why}): {_first_line(error)}") from error
    return str(commit.pr_url or commit.commit_url)


def _warn_of_an_encoder_that_others_lack(config: dict[str, Any]) -> None:
    name = config.get("encoder", {}).get("name", MINI)
    if not config.get("bundled_encoder") and name not in (MINI, MINI_VERSION) and not is_hub_id(name):
        warnings.warn(
            f"The encoder {name!r} is not on the hub, so others will have to give one with encoder=…: better save and push "
            "with bundle_encoder=True.",
            stacklevel=3,
        )


def _card(folder: Path, config: dict[str, Any]) -> str:
    path = folder / CARD
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else model_card(config, folder.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} is damaged ({error}): save it as UTF-8, or delete it for a new one.") from None


def _renewed_card(folder: Path, old: dict[str, Any], new: dict[str, Any], name: str | None = None) -> str:
    """Return the folder's card, made to tell of ``new``."""
    from yaml import YAMLError

    card = _card(folder, old)
    try:
        return renewed(card, old, new, name)
    except (ValueError, YAMLError) as error:
        raise ModelFolderError(
            f"{folder / CARD} is damaged ({_first_line(error)}): correct the YAML between its --- lines, or delete the file "
            "for a new one."
        ) from None


def _rewrite(path: Path, text: str) -> None:
    try:
        with atomic_file(path, follow_link=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ModelFolderError(
            f"{path} could not be written ({error.strerror}); what was there is unchanged."
        ) from None


def _as_json(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2) + "\n"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _is_ours(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        return json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        return False
