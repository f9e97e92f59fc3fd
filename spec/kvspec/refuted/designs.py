"""The refuted designs, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kvspec.refuted.admission import GATES, HANGS
from kvspec.refuted.masks import MASKS
from kvspec.refuted.pins import PINS
from kvspec.refuted.replay import Refuted
from kvspec.refuted.scans import SCANS

_ALL: tuple[Refuted, ...] = (*MASKS, *SCANS, *GATES, *PINS, *HANGS)

DESIGNS: Mapping[str, Refuted] = MappingProxyType({each.name: each for each in _ALL})
"""Name to design."""
