"""Seeded damage to files: what disks, networks, editors and strangers do to them.

No damage ever names a file of this machine: what points outside points at a canary made for it. (An early version linked to
a real file, and the fault that it was to find wrote into that file.)
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUTSIDE = "outside"  # a folder beside the one under attack that nothing may change
HUGE = [-1, 0, 2**31, 2**63, 10**18, -(10**18), 10**400, 1e308, float("nan"), float("inf")]
TRICKS = [
    f"../{OUTSIDE}/canary",
    f"../../{OUTSIDE}/canary",
    f"{OUTSIDE}/../../{OUTSIDE}/canary",
    f"~/{OUTSIDE}/canary",
    f"file:../{OUTSIDE}/canary",
    "http://127.0.0.1:9/x",
    "a\0b",
    "x" * 5000,
    "",
    ".",
    "..",
    "\x1b[2J\u202e",
    "os.system",
    "__import__('os').system('touch ../outside/x')",
]


def damage(folder: Path, rng: random.Random) -> str:
    """Damage one file of a folder; return what was done, for the report."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    small = [path for path in files if path.suffix in (".json", ".jsonl", ".md", ".csv", ".tsv", ".txt")]
    path = rng.choice(small if small and rng.random() < 0.4 else files)
    fitting = [change for change, applies in CHANGES if applies(path)]
    change = rng.choice(fitting)
    return f"{path.relative_to(folder)}: {change.__name__} {change(path, rng)}"


def flip(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    places = [rng.randrange(len(content)) for _ in range(rng.choice([1, 1, 8]))]
    for place in places:
        content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return str(places)


def flip_head(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place = rng.randrange(min(len(content), 128))
    content[place] = rng.choice([0, 255, content[place] ^ 1, 0x39])
    path.write_bytes(content)
    return str(place)


def cut(path: Path, rng: random.Random) -> str:
    size = path.stat().st_size
    left = rng.choice([0, 1, 7, size // 2, size - 1, rng.randrange(size)])
    os.truncate(path, left)
    return f"to {left} of {size}"


def extend(path: Path, rng: random.Random) -> str:
    with path.open("ab") as file:
        file.write(rng.choice([b"\0" * 100, b"x", path.read_bytes(), rng.randbytes(1000)]))
    return ""


def blank(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    length = min(rng.choice([4, 64, 4096]), len(content) - start)
    content[start : start + length] = rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)])
    path.write_bytes(content)
    return f"{length} from {start}"


def remove_piece(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    start = rng.randrange(len(content))
    path.write_bytes(content[:start] + content[start + rng.choice([1, 8, 100]) :])
    return f"from {start}"


def delete(path: Path, rng: random.Random) -> str:
    path.unlink()
    return ""


def folder_instead(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return ""


def link_instead(path: Path, rng: random.Random) -> str:
    canary = next(room / OUTSIDE / "canary" for room in path.parents if (room / OUTSIDE / "canary").is_file())
    target = rng.choice([path.parent / "nowhere", path, canary])
    path.unlink()
    path.symlink_to(target)
    return f"to {target.name}"


def another_file_instead(path: Path, rng: random.Random) -> str:
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    if not others:
        return "none"
    other = rng.choice(others)
    shutil.copy(other, path)
    return f"is {other.name}"


def change_json(path: Path, rng: random.Random) -> str:
    value, what = mutate_json(json.loads(path.read_text()), rng)
    path.write_text(value if isinstance(value, str) and what == "raw" else json.dumps(value))
    return what


def change_json_line(path: Path, rng: random.Random) -> str:
    lines = path.read_text().splitlines()
    number = rng.randrange(len(lines))
    value, what = mutate_json(json.loads(lines[number]), rng)
    lines[number] = value if what == "raw" else json.dumps(value)
    path.write_text("\n".join(lines) + "\n")
    return f"line {number} {what}"


def change_safetensors_header(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    value, what = mutate_json(json.loads(content[8:end]), rng)
    header = (value if what == "raw" else json.dumps(value)).encode()
    length = rng.choice([len(header)] * 4 + [0, 2**63, 2**40, len(content)])
    path.write_bytes(length.to_bytes(8, "little") + header + content[end:])
    return f"{what}, length {length}"


def change_npy_header(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    end = 10 + int.from_bytes(content[8:10], "little")
    header = content[10:end].decode("latin1")
    old, new = rng.choice(
        [
            ("(", "(-"),
            ("(", "(9999999999, "),
            ("(", "(9"),
            ("<f", ">f"),
            ("<f4", "|O"),
            ("False", "True"),
            ("<f4", "<f8"),
            ("<f2", "<f4"),
            ("{", "{'x': __import__('os').system('touch ../outside/x'), "),
            (", }", ", 'y': 1}"),
        ]
    )
    header = header.replace(old, new, 1).rstrip()
    header = header.ljust(end - 11)[: end - 11] + "\n"
    path.write_bytes(content[:10] + header.encode("latin1") + content[end:])
    return f"{old} to {new}"


def change_text(path: Path, rng: random.Random) -> str:
    lines = path.read_bytes().split(b"\n")
    number = rng.randrange(len(lines))
    what, line = rng.choice(
        [
            ("NUL", lines[number][:3] + b"\0" + lines[number][3:]),
            ("not UTF-8", b"na\xefve"),
            ("half a character", b'{"text": "\\ud800"}'),
            ("a megabyte", b"word " * 200_000),
            ("more columns", lines[number] + b"\tx,y\tz"),
            ("a quote", b'"' + lines[number]),
            ("controls", b"\x1b[2J\x07\x08" + lines[number]),
            ("twice", lines[number] + b"\n" + lines[number]),
            ("empty", b""),
            ("nan", b"nan"),
            ("byte order mark", b"\xef\xbb\xbf" + lines[number]),
            ("numbers", b"1e999,-inf\t1e999"),
        ]
    )
    lines[number] = line
    path.write_bytes(b"\n".join(lines))
    return f"line {number}: {what}"


def in_utf_16(path: Path, rng: random.Random) -> str:
    path.write_bytes(path.read_bytes().decode("utf-8", "replace").encode("utf-16"))
    return ""


def mutate_json(value: Any, rng: random.Random) -> tuple[Any, str]:
    """Return a JSON value with one node changed, and what was done; "raw" where it no longer is JSON."""
    if rng.random() < 0.08:
        text = json.dumps(value)
        raw = ["[" * 100_000, text[:-1], text.replace("{", '{"format": 1, ', 1), text + text, "null", "[]", "3", '""']
        return rng.choice(raw), "raw"
    box = {"": value}
    nodes: list[tuple[Any, Any]] = []

    def walk(parent: Any, depth: int = 0) -> None:
        for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
            nodes.append((parent, key))
            if isinstance(parent[key], dict | list) and depth < 8:
                walk(parent[key], depth + 1)

    walk(box)
    parent, key = rng.choice(nodes)
    old = parent[key]
    kinds: list[Any] = [None, True, [], {}, "text", 7, [old], {"x": old}, str(old), *HUGE, *TRICKS]
    if rng.random() < 0.2 and parent is not box:
        del parent[key]
        return box[""], f"without {key!r}"
    parent[key] = rng.choice(kinds)
    if isinstance(old, int | float) and rng.random() < 0.4:
        parent[key] = rng.choice([old + 1, old * 2, -old, old / 3, 10**6, 10**9])
    return box[""], f"{key!r} = {parent[key]!r:.60}"


def _is_json(path: Path) -> bool:
    return path.suffix == ".json" and path.stat().st_size < 10**6


CHANGES: list[tuple[Callable[[Path, random.Random], str], Callable[[Path], bool]]] = [
    *((change, lambda path: path.stat().st_size > 0) for change in (flip, flip_head, cut, extend, blank, remove_piece)),
    *((change, lambda path: True) for change in (delete, folder_instead, link_instead, another_file_instead)),
    *[(change_json, _is_json)] * 6,
    *[(change_json_line, lambda path: path.suffix == ".jsonl")] * 3,
    *[(change_safetensors_header, lambda path: path.suffix == ".safetensors")] * 4,
    *[(change_npy_header, lambda path: path.suffix == ".npy")] * 3,
    *[(change_text, lambda path: path.suffix in (".txt", ".csv", ".tsv", ".jsonl"))] * 4,
    (in_utf_16, lambda path: path.suffix in (".txt", ".csv", ".tsv", ".jsonl", ".json")),
]
