import csv
import io
import json

from bertflow.evaluation.formats import FORMATS
from bertflow.paper.layout import PaperTable, Row

TABLE = PaperTable(
    "Table 5",
    "calibrations",
    ("STS-B",),
    (Row("flow", (58.4,), (60.1,), (0.2,)), Row("sn", (None,), (55.0,))),
    {"s": 1},
)


def test_a_table_of_the_paper_in_every_format():
    texts = {form: TABLE.to(form) for form in FORMATS}
    assert texts["markdown"] == TABLE.to_markdown()
    assert json.loads(texts["json"])["rows"][0]["ours"] == [60.1]
    assert r"Table 5 & STS-B: paper & STS-B: ours & STS-B: $\Delta$ \\" in texts["latex"]
    assert r"flow & 58.40 & 60.10 {\small$\pm$0.20} & 1.70 \\" in texts["latex"]
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert [(row["Table 5"], row["task"], row["value"]) for row in rows] == [
        ("flow", "STS-B: paper", "58.4000"),
        ("flow", "STS-B: ours", "60.1000"),
        ("flow", "STS-B: Δ", "1.7000"),
        ("sn", "STS-B: ours", "55.0000"),
    ]
