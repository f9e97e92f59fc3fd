"""Print the page of reports: ``python -m kvgate.explain tests/difftest/explain/reports > difftest/explained.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from kvgate.explain.page import page
from kvgate.explain.reports import read_all

if __name__ == "__main__":
    sys.stdout.write(page(read_all(Path(sys.argv[1]))))
