import csv
import io
import json

import pytest

from bertflow.evaluation.formats import FORMATS, Figure, Figures

TABLE = Figures(
    "recipe",
    ["my_pairs & co", "search"],
    {
        "raw": [Figure(50.0, None, 45.01, 54.99, metric="spearman"), None],
        "natsv-1%": [Figure(61.234, 0.5, 58, 64, 0.01, True, "spearman"), Figure(7, p_value=0.2, metric="ndcg@10")],
    },
    {"anything": [1, 2.5, "ä"]},
)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_ends_in_one_line_feed(form):
    assert TABLE.to(form).endswith("\n")
    assert not TABLE.to(form).endswith("\n\n")


def test_markdown():
    assert TABLE.to("markdown").splitlines() == [
        "| recipe | my_pairs & co | search |",
        "|---|---:|---:|",
        "| raw | 50.00 (45.0–55.0) | – |",
        "| natsv-1% | **61.23±0.50** (58.0–64.0) | 7.00 |",
    ]


def test_latex_for_booktabs():
    assert TABLE.to("latex").splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"recipe & my\_pairs \& co & search \\",
        r"\midrule",
        r"raw & 50.00 & -- \\",
        r"natsv-1\% & \textbf{61.23}$^{*}$ {\small$\pm$0.50} & 7.00 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_has_one_line_a_figure():
    rows = list(csv.DictReader(io.StringIO(TABLE.to("csv"))))
    assert len(rows) == 3
    assert rows[0] == {
        "recipe": "raw", "task": "my_pairs & co", "metric": "spearman", "value": "50.0000", "sd": "", "low": "45.0100",
        "high": "54.9900", "p_value": "",
    }  # fmt: skip
    assert rows[2]["metric"] == "ndcg@10"


def test_json_is_what_is_known():
    assert json.loads(TABLE.to("json")) == TABLE.content
