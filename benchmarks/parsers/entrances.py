"""All entrances, by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.parsers.entrance import Entrance
from benchmarks.parsers.foreign import FOREIGN
from benchmarks.parsers.recorded import RECORDED
from benchmarks.parsers.stored import STORED
from benchmarks.parsers.told import TOLD

ENTRANCES: Mapping[str, Entrance] = {each.name: each for each in (*STORED, *RECORDED, *FOREIGN, *TOLD)}
"""Every parser of something that comes from outside."""
