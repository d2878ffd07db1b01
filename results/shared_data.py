"""Where the scripts of this folder find the data sets: BERTFLOW_DATA, else ../shared/data beside the checkout."""

import os
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def use_shared_data() -> None:
    """Set BERTFLOW_DATA for this process, where nobody has set it; the package itself looks nowhere else."""
    if SHARED.is_dir():
        os.environ.setdefault("BERTFLOW_DATA", str(SHARED))
