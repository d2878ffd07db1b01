"""One page that shows a space before and after calibration, and says in plain words whether it helped."""

from bertflow.report.findings import Findings, gather
from bertflow.report.verdict import Origin
from bertflow.report.writing import Report, report_spaces, write_report

__all__ = ["Findings", "Origin", "Report", "gather", "report_spaces", "write_report"]
