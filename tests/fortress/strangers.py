"""Folders that a stranger could send: each tries to have its own Python code run."""

import json
import shutil
from pathlib import Path

CODE = """
from pathlib import Path
Path({marker!r}).write_text("run")
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
class EvilConfig(BertConfig):
    model_type = "evil"
class EvilModel(BertModel):
    config_class = EvilConfig
class EvilTokenizer(PreTrainedTokenizerFast):
    pass
class EvilModule:
    pass
"""
MAP = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel", "AutoModelForMaskedLM": "evil.EvilModel"}


def hostile_transformer(folder: Path, good: Path, marker: Path, *, unknown: bool = True) -> Path:
    """A model's folder whose configuration and tokenizer name classes in a file beside them.

    Args:
        folder: Where.
        good: A sound model to begin with.
        marker: A file that the code writes when it is run.
        unknown: Give it a ``model_type`` that transformers does not know, so that nothing but that code could load it.
    """
    shutil.copytree(good, folder, dirs_exist_ok=True)
    (folder / "evil.py").write_text(CODE.format(marker=str(marker)))
    _change(folder / "config.json", auto_map=MAP, **({"model_type": "evil"} if unknown else {}))
    named = {"auto_map": {"AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"]}}
    _change(folder / "tokenizer_config.json", **named, **({"tokenizer_class": "EvilTokenizer"} if unknown else {}))
    return folder


def hostile_sentence_transformer(folder: Path, good: Path, marker: Path, *, inside: bool) -> Path:
    """A SentenceTransformer with a hostile transformer inside it, or with a module of its own."""
    first = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    if inside:
        hostile_transformer(folder, good, marker)
        modules = [first]
    else:
        shutil.copytree(good, folder)
        (folder / "evil.py").write_text(CODE.format(marker=str(marker)))
        modules = [first, {"idx": 1, "name": "1", "path": "1_Evil", "type": "evil.EvilModule"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def vouch_for(folder: Path) -> None:
    """Give a changed model folder checksums that fit, as whoever means harm would."""
    from bertflow.storage import model_folder
    from bertflow.storage.checksums import checksum, sealed

    config = json.loads((folder / "config.json").read_text())
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent != folder]
    config["sha256"] |= {path.relative_to(folder).as_posix(): checksum(path) for path in files}
    (folder / "config.json").write_text(json.dumps(sealed(config, model_folder.FREE)))


def _change(path: Path, **new: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | new))
