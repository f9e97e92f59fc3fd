"""What is fuzzed, as a document: the manifest of a run directory, and all that a worker receives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen
from attrs.validators import deep_iterable, ge, in_, instance_of, le, optional

from kvgate.gate.level import LevelChoice
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, read_bytes, strict_converter

FORMAT = "kvgate-fuzz"
VERSION = 1
SHARDS_MAX = 1_000_000
"""How many shards a run may have; the seeds of two runs never meet."""
FILE_BYTES_MAX = 1_000_000

_CONVERTER = strict_converter()
_number = [instance_of(int), ge(0)]
_count = [instance_of(int), ge(1)]
_names = deep_iterable(instance_of(str), instance_of(tuple))


@frozen
class FuzzPlan:
    """What is fuzzed. Shard by shard it is always the same, on every worker."""

    sut: str
    models: tuple[str, ...] = field(default=(), validator=_names)
    """Empty for the system's default models."""
    level: str = field(default=LevelChoice.BLOCKS.value, validator=in_([each.value for each in LevelChoice]))
    preloads: tuple[str, ...] = field(default=(), validator=_names)
    seed: int = field(default=0, validator=_number)
    shards: int | None = field(default=None, validator=optional([*_count, le(SHARDS_MAX)]))
    """How many shards; None: as many as there is time for."""
    shard_operations: int = field(default=20_000, validator=_count)
    """How many operations a shard performs at least."""
    twice_percent: int = field(default=5, validator=[*_number, le(100)])
    """Of a hundred cases, how many are run a second time."""
    monitors_only: bool = False
    minimise_seconds: int = field(default=60, validator=_number)
    """How long a worker makes what it found smaller."""

    def seed_of(self, shard: int) -> int:
        """The campaign's seed of a shard: ``kvgate check --seed`` draws the same cases from it."""
        return self.seed * SHARDS_MAX + shard


def manifest(plan: FuzzPlan) -> str:
    """The plan as a document."""
    return json.dumps({"format": FORMAT, "version": VERSION, "plan": asdict(plan)}, indent=1) + "\n"


def read_manifest(path: Path) -> FuzzPlan:
    """Read a manifest.

    Raises:
        UsageError: no such file, or not a manifest of this version; says why.
    """
    raw = read_bytes(path, FILE_BYTES_MAX)
    try:
        return plan_in(json.loads(raw))
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: {explain(error)}") from error


def plan_in(document: Any) -> FuzzPlan:
    """The plan in a document.

    Raises:
        ValueError: it has none.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'not a manifest: "format" is not "{FORMAT}"')
    if document.get("version") != VERSION:
        raise ValueError(f"version {document.get('version')!r:.40}; this kvgate reads {VERSION}")
    plan = document.get("plan")
    if isinstance(plan, dict) and not all(isinstance(plan.get(name, []), list) for name in ("models", "preloads")):
        raise ValueError("models and preloads are lists")
    found: FuzzPlan = _CONVERTER.structure(plan, FuzzPlan)
    return found
