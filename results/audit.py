"""Known faults and licences of the pinned packages.

python results/audit.py    (make audit, which installs pip-audit)

pip-audit says "No known vulnerabilities" of packages that it skipped too. Here a skipped package is a failure, and where the
database is out of reach that is said and nothing is recorded. Writes results/licences.md, and results/audit.md only after a
whole look-up.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
REPORT, LICENCES = ROOT / "results" / "audit.md", ROOT / "results" / "licences.md"
FAILED, OUT_OF_REACH = 1, 2  # exit codes


def pinned() -> list[Requirement]:
    """The packages of constraints.txt that this Python takes."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    found = [Requirement(line) for line in lines if line]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


def look_up(packages: list[Requirement]) -> dict[str, Any] | None:
    """What pip-audit knows of the packages, as its JSON; None where it cannot be asked."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{one.name}{one.specifier}\n" for one in packages))
        file.flush()
        command = [sys.executable, "-m", "pip_audit", "-r", file.name, "--no-deps", "--disable-pip", "-f", "json"]
        done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.stderr.write(done.stderr[-500:])
        return None


def judge(found: dict[str, Any] | None) -> tuple[int, str]:
    """An exit code, and what to say of a look-up."""
    rows = found["dependencies"] if found else []
    skipped = [row["name"] for row in rows if "skip_reason" in row]
    faults = [f"{row['name']} {row['version']}: {fault['id']}" for row in rows for fault in row.get("vulns", [])]
    if len(skipped) == len(rows):
        return (
            OUT_OF_REACH,
            "The database of known faults is out of reach (or pip-audit is missing); nothing was recorded.",
        )
    if skipped:
        return FAILED, f"{len(skipped)} packages were skipped, so nothing is known of them: {', '.join(skipped)}."
    if faults:
        return FAILED, "Known faults:\n" + "\n".join(faults)
    return 0, f"{len(rows)} packages were looked up; none has a known fault."


def licences(packages: list[Requirement]) -> dict[str, str]:
    """The licence that each installed package names."""
    found = {}
    for one in packages:
        try:
            about = importlib.metadata.metadata(one.name)
        except importlib.metadata.PackageNotFoundError:
            found[one.name] = "not installed here"
            continue
        classes = [line.split(" :: ")[-1] for line in about.get_all("Classifier", []) if line.startswith("License")]
        named = about.get("License-Expression") or ", ".join(classes) or (about.get("License") or "").strip()
        found[one.name] = (named.splitlines() or ["unnamed"])[0][:60]
    return found


def main() -> None:
    """Look up, show, and record."""
    packages = pinned()
    known = licences(packages)
    counts = Counter(known.values())
    sys.stdout.write("".join(f"{number:4}  {name}\n" for name, number in counts.most_common()))
    code, said = judge(look_up(packages))
    sys.stdout.write(said + "\n")
    rows = "".join(f"| {one.name} | {one.specifier} | {known[one.name]} |\n" for one in packages)
    head = "# Licences of constraints.txt\n\nMade by `make audit`.\n\n| package | version | licence |\n|---|---|---|\n"
    LICENCES.write_text(head + rows, encoding="utf-8")
    if code == 0:
        REPORT.write_text(f"# Known faults of constraints.txt\n\nMade by `make audit`: {said}\n", encoding="utf-8")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
