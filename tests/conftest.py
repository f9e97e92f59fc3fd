"""The programs under ``benchmarks/`` are found as those who run them from the root find them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
