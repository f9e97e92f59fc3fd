"""Finding 106: OffloadingConnector stores all tokens of a request that was aborted, computed or not."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import raising_request
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The connector builds the stores of an aborted request, which has more keys than blocks for them."""
    difference = divergence.difference
    if (difference.subject, difference.got) != ("AssertionError in _build_store_jobs", "AssertionError: "):
        return False
    offloading = engine.connector.offloading
    status = None if offloading is None else offloading.half._req_status.get(raising_request(engine))
    return status is not None and _lacks_blocks(status)


def _lacks_blocks(status: Any) -> bool:
    is_aborted = status.req.status.name == "FINISHED_ABORTED"
    parts = status.config.blocks_per_chunk
    return is_aborted and any(
        len(group.block_ids) < parts * len(group.offload_keys) and group.next_stored_chunk_idx < len(group.offload_keys)
        for group in status.group_states
    )


FINDING = Finding(
    id="106-aborted-request-is-stored-in-full",
    rank=106,
    statement="KV-SYS-01",
    condition="a request that is aborted before it has a block for each of its tokens",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
