"""The programs under ``benchmarks/`` are imported as when they are run from the root."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
