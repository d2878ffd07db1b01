"""The README's main table: calibrators × poolings on one encoder, the seven STS sets and QNLI, five seeds.

    python results/compare.py --encoder mini

Writes results/compare-ENCODER.md: a summary (average of the seven sets), then each pooling's full table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from shared_data import use_shared_data

from bertflow.encoders.transformer import as_encoder
from bertflow.evaluation import load_task
from bertflow.evaluation.comparison import ComparisonTable, compare_recipes
from bertflow.paper.published import SEVEN
from bertflow.paper.sts import nli_sentences

CALIBRATORS = ("none", "sn", "natsv-1", "natsv-10", "sn+natsv-6", "whitening", "flow", "flow-paper")
POOLINGS = "mean,first-last-avg,embedding-last-avg,cls"
HERE = Path(__file__).parent


def main(
    encoder: Annotated[str, typer.Option(help="Model name or folder.")] = "mini",
    poolings: Annotated[str, typer.Option(help="Comma-separated.")] = POOLINGS,
    seeds: Annotated[int, typer.Option(help="Seeds of the flow.")] = 5,
    output: Annotated[Path | None, typer.Option(help="Default: results/compare-ENCODER.md.")] = None,
) -> None:
    """Run every calibrator on every pooling and write the tables."""
    tasks = [load_task(name) for name in (*SEVEN, "QNLI")]
    sentences = nli_sentences(None) or []
    tables = {}
    for pooling in poolings.split(","):
        model = as_encoder(encoder, pooling)
        options = {"seeds": range(seeds), "show_progress_bar": True}
        target = compare_recipes(model, tasks, CALIBRATORS, **options)
        general = compare_recipes(model, tasks, ["flow"], fit_on=sentences, **options)
        tables[pooling] = target, general
    name = Path(encoder).name
    command = f"python results/compare.py --encoder {name}" + (
        "" if poolings == POOLINGS else f" --poolings {poolings}"
    )
    text = f"# Calibrators on {name}\n\nMade by `{command}`, seeds 0–{seeds - 1}.\n\n" + summary(tables, seeds)
    for pooling, (target, general) in tables.items():
        text += f"\n## {pooling}, fitted on target\n\n{target.to_markdown()}"
        text += f"\n### {pooling}, fitted on {general.fit_on} of SNLI and MNLI\n\n{general.to_markdown()}"
    (output or HERE / f"compare-{name}.md").write_text(text, encoding="utf-8")


def summary(tables: dict[str, tuple[ComparisonTable, ComparisonTable]], seeds: int) -> str:
    """Average of the seven sets (Spearman ×100; STS12–16 as wmean), mean over seeds; QNLI's AUC apart."""
    text = ""
    for title, names in (("Average of the seven STS sets, Spearman ×100", SEVEN), ("QNLI, AUC ×100", ("QNLI",))):
        text += f"### {title}\n\n| calibrator | {' | '.join(tables)} |\n|---{'|---:' * len(tables)}|\n"
        for calibrator in (*CALIBRATORS, "flow (NLI sentences)"):
            cells = []
            for target, general in tables.values():
                results = general.results["flow"] if "NLI" in calibrator else target.results[calibrator]
                cells.append(_average([results[name].values for name in names]))
            text += f"| {calibrator} | {' | '.join(cells)} |\n"
        text += "\n"
    return (
        text + f"Flow: mean ± standard deviation over {seeds} seeds. Fitted on target unless it says NLI sentences.\n"
    )


def _average(values: list[tuple[float, ...]]) -> str:
    """Average over tasks for each seed, then mean ± sd over seeds."""
    by_seed = np.mean(np.array(values), axis=0)
    return f"{by_seed.mean():.2f}" + (f" ± {by_seed.std(ddof=1):.2f}" if len(by_seed) > 1 else "")


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
