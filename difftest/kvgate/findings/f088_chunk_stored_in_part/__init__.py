"""Finding 088: A chunk of which some blocks are stored counts as a hit for all of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import import_module
from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import raising_request
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """What a load brings to a window is a part of a chunk that was left out; or a store puts what follows such a part
    to its place, or counts that part as well, which raises, or has too few blocks for its chunks."""
    difference = divergence.difference
    is_offloading = engine.connector.offloading and engine.stage.blocks_per_chunk > 1
    if is_offloading and (difference.statement, difference.subject) == ("KV-SYS-01", "AssertionError in __init__"):
        return _counts_part() and _has_part(engine, {raising_request(engine)})
    if is_offloading and (difference.statement, difference.subject) == ("KV-TIER-04", "the blocks of a store"):
        blocks, chunks = map(int, re.findall(r"\d+", difference.got)[:2])
        is_short = blocks < engine.stage.blocks_per_chunk * chunks
        return is_short and _has_part(engine, {engine.memory.unfit})
    if not engine.memory.culprits or engine.stage.blocks_per_chunk == 1:
        return False
    job, copy = engine.memory.culprits[0]
    if engine.settings.geometry.groups[copy.group].kind is not Kind.SLIDING_WINDOW:
        return False
    if divergence.difference.statement == "KV-TIER-04":
        return not job.loads and engine.connector.is_offloading(job) and _is_shifted(engine, job, copy)
    is_left_out = (job.tier, copy.chunk, copy.part) in engine.memory.left_out
    return divergence.difference.statement == "KV-TIER-01" and is_left_out


def _counts_part() -> bool:
    """Whether the release counts the blocks that it leaves out."""
    version: str = import_module("vllm").__version__
    return version == "0.21.0"


def _has_part(engine: Any, names: Collection[str]) -> bool:
    """One of these requests has the last block of a chunk, and not the first one, which its window has left."""
    parts, states = engine.stage.blocks_per_chunk, engine.connector.offloading.half._req_status.items()
    blocks = [group.block_ids for name, each in states if name in names for group in each.group_states]
    chunks = [each[at : at + parts] for each in blocks for at in range(0, len(each) - parts + 1, parts)]
    return any(chunk[-1] and not chunk[0] for chunk in chunks)


def _is_shifted(engine: Any, job: Any, copy: Any) -> bool:
    """A store has fewer blocks of the group than its chunks, and the block is that of a later place."""
    parts, size = engine.stage.blocks_per_chunk, engine.settings.geometry.groups[copy.group].block_size_tokens
    of_group = [each for each in job.copies if each.group == copy.group]
    is_short = of_group[0].part + len(of_group) < parts * len({each.chunk for each in of_group})
    held, tokens = engine.memory.device.get(copy.block), engine.memory.tokens[job.request]
    later = range((copy.index + 1) * size, len(tokens), size)
    return is_short and any(held == (copy.group, tuple(tokens[at : at + size])) for at in later)


FINDING = Finding(
    id="088-chunk-stored-in-part",
    rank=88,
    statement="KV-TIER-01",
    condition="chunks of several blocks, and a window that has left some of them",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
