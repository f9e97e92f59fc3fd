"""What ``kvgate prove`` could prove, a line each."""

from __future__ import annotations

from kvspec.refuted.designs import DESIGNS
from kvspec.registry import obligations


def listing() -> str:
    """Every obligation and every refuted design."""
    lines = ["obligations (tier, id, statements):"]
    for each in obligations().values():
        lines.append(f"  {each.tier.value}  {each.id} ({', '.join(each.statements)}): {each.sentence}")
    lines += ["", "designs that do not work:"]
    lines += [f"  {each.name} ({each.statement}): {each.story}" for each in DESIGNS.values()]
    return "\n".join(lines) + "\n"
