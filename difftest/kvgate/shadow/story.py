"""A difference in a recording, told."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.kernel.text import printable
from kvgate.shadow import calls
from kvgate.shadow.calls import Stored
from kvgate.shadow.shadow_checker import Finding
from kvreference.statements import STATEMENTS

TEXT_MAX = 400
"""How much of an answer is told."""
STORY_MAX = 2**14
"""How much of a story is told; one of the calls that are handed over here is shorter."""
_NO_ROOM = "it cannot be seen again: what led there was not written, for want of room; see KVGATE_SHADOW_MAX_BYTES"
_TORN = (
    "it cannot be seen again from what was written: there was no room for the checkpoint that it begins with; "
    "set KVGATE_SHADOW_RING_BYTES higher"
)


def headline(finding: Finding) -> str:
    """A difference in a line."""
    difference = finding.difference
    text = f"expected {difference.expected}, got {difference.got}"
    return printable(f"{difference.statement} at step {finding.step}: {difference.subject}: {text}", TEXT_MAX)


def told(finding: Finding, before: Sequence[Stored], again: str | None, is_whole: bool = True) -> str:
    """A difference with the calls that led there, and how to see it again; ``is_whole`` if that is possible.

    ``again`` is None where no recording was written.
    """
    difference = finding.difference
    lines = [
        f"{difference.statement}: {STATEMENTS[difference.statement]}",
        f"step {finding.step}, call {finding.call}: {describe(finding.record)}",
        f"expected: {printable(difference.expected, TEXT_MAX)}",
        f"got: {printable(difference.got, TEXT_MAX)}",
        f"differs: {difference.subject}",
    ]
    if finding.declared is not None:
        lines.append(f"declared: {finding.declared}")
    lines += ["calls:", *(f"      {describe(record)}" for record in before), f">     {describe(finding.record)}"]
    how = ["to see it again:", f"  {again}"] if is_whole else [_TORN]
    how = [_NO_ROOM] if again is None else how
    return "\n".join([*lines, *how])[: STORY_MAX - 1] + "\n"


def describe(record: Stored) -> str:
    """A call in a line."""
    if isinstance(record, calls.Checkpoint):
        held = sum(reference > 0 for reference in record.references[1:])
        text = f"checkpoint: {len(record.arrivals)} requests, {held} blocks held, {len(record.identities)} cached"
    elif isinstance(record, calls.Arrived):
        text = f"request {record.number} arrives, {record.tokens} tokens"
    elif isinstance(record, calls.Grew):
        text = f"request {record.number} has {record.tokens} tokens"
    elif isinstance(record, calls.LookedUp):
        text = f"request {record.number} looks up -> a hit of {record.hit_tokens} tokens {record.blocks}"
    elif isinstance(record, calls.Gated):
        text = f"request {record.number} behind {record.computed + record.hit_tokens} tokens -> " + (
            "fits" if record.fits else "does not fit"
        )
    elif isinstance(record, calls.Allocated):
        kind = "is let in" if record.is_first else "runs"
        gets = "refused" if record.given is None else f"{'has' if record.is_whole else 'gets'} {record.given}"
        text = (
            f"request {record.number} {kind}: {record.tokens} tokens behind "
            f"{record.computed + record.hit_tokens + record.external_tokens} -> {gets}, {record.after.free} blocks free"
        )
    elif isinstance(record, calls.Step):
        text = f"step {record.number}"
    else:
        text = str(record)
    return printable(text, TEXT_MAX)
