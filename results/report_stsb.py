"""The report on STS-B that the README links to; its sentences are not ours to share, so they are numbers there.

python results/report_stsb.py
"""

from __future__ import annotations

from pathlib import Path

from shared_data import use_shared_data

from bertflow import write_report
from bertflow.evaluation import load_task
from bertflow.report import Origin


def main() -> None:
    """Write docs/report-stsb.html."""
    task = load_task("STS-B")
    output = Path(__file__).parent.parent / "docs" / "report-stsb.html"
    write_report(task.fit_sentences, output, "mini", pairs=task, origin=Origin(title="STS-B"), show_texts=False)


if __name__ == "__main__":
    use_shared_data()
    main()
