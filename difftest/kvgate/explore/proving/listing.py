"""What ``kvgate prove`` could prove and refute, a line each."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvspec.refuted.designs import DESIGNS
from kvspec.registry import obligations


def listing(names: Sequence[str], designs: Sequence[str]) -> str:
    """Obligations and refuted designs, as text."""
    lines = ["obligations (tier, id, statements):"] if names else []
    for name in names:
        each = obligations()[name]
        lines.append(f"  {each.tier.value}  {each.id} ({', '.join(each.statements)}): {each.title}")
    lines += (
        ["", "designs that do not work:"] if names and designs else ["designs that do not work:"] if designs else []
    )
    lines += [f"  {name} ({DESIGNS[name].statement}): {DESIGNS[name].story}" for name in designs]
    return "\n".join(lines)


def listing_as_json(names: Sequence[str], designs: Sequence[str]) -> str:
    """The same, for a program."""
    found = [obligations()[name] for name in names]
    return json.dumps(
        {
            "format": "kvgate-list",
            "version": 1,
            "obligations": [
                {
                    "id": each.id,
                    "tier": each.tier.value,
                    "bound": each.bound or None,
                    "statements": list(each.statements),
                    "sentence": each.title,
                }
                for each in found
            ],
            "designs": [
                {"design": name, "statement": DESIGNS[name].statement, "story": DESIGNS[name].story} for name in designs
            ],
        },
        indent=1,
    )
