"""The boundary table.

Goal: a key is that of one whole prefix in one group, and what is forgotten is gone in both directions. Method: vLLM's
own block hashes of requests that differ in one thing, and small tables by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from swa_retention.partial.boundaries import Boundaries, key_of

GRAIN = 4


@pytest.fixture(scope="module")
def hashes_of() -> Callable[..., Sequence[bytes]]:
    """From tokens, a salt and an adapter to vLLM's block hashes."""
    pytest.importorskip("vllm")
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)

    def hashes(tokens: Sequence[int], salt: str | None = None, lora: str | None = None) -> Sequence[bytes]:
        return Request(
            request_id="request",
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(),
            pooling_params=None,
            lora_request=None if lora is None else LoRARequest(lora, 1, "/lora"),
            cache_salt=salt,
            block_hasher=get_request_block_hasher(GRAIN, sha256),
        ).block_hashes

    return hashes


def test_a_key_stands_for_the_whole_prefix(hashes_of: Callable[..., Sequence[bytes]]) -> None:
    """A difference before a boundary of 12 tokens, in the first one, the last, salt or adapter, makes another key."""
    tokens = list(range(16))
    others: dict[str, Any] = {
        "the same": hashes_of(tokens),
        "the first token": hashes_of([99, *tokens[1:]]),
        "the last token before it": hashes_of([*tokens[:11], 99, *tokens[12:]]),
        "the salt": hashes_of(tokens, salt="salt"),
        "the adapter": hashes_of(tokens, lora="adapter"),
        "an adapter of another name": hashes_of(tokens, lora="other"),
        "the place": [*hashes_of(tokens)[1:], b""],
    }
    keys = {name: key_of(hashes, 12, GRAIN, 0) for name, hashes in others.items()}
    assert all(one != other for one, other in combinations(keys.values(), 2))
    # Tokens after the boundary are not part of it, and each group has its own.
    assert keys["the same"] == key_of(hashes_of([*tokens[:12], 99, 99, 99, 99]), 12, GRAIN, 0)
    assert keys["the same"] != key_of(others["the same"], 12, GRAIN, 1)


def block(number: int) -> Any:
    """As much of vLLM's block as the table needs."""
    return SimpleNamespace(block_id=number)


def test_the_block_registered_first_serves() -> None:
    """And the next one, once that is forgotten; registering again changes nothing."""
    table, one, two = Boundaries(), block(1), block(2)
    for each in (one, two, one):
        table.register(b"key", each)
    assert one is table.find(b"key")
    table.forget(1)
    assert two is table.find(b"key")
    table.forget(2)
    assert (None, 0, frozenset()) == (table.find(b"key"), len(table), table.block_ids())


def test_every_boundary_inside_a_block_goes_with_it() -> None:
    """Those of other blocks stay; a block without any is forgotten like one with."""
    table = Boundaries()
    for key in (b"16", b"32", b"48"):
        table.register(key, block(1))
    table.register(b"other", block(2))
    table.forget(1)
    table.forget(3)
    assert [None, None, None] == [table.find(key) for key in (b"16", b"32", b"48")]
    assert (False, True, 1) == (1 in table, 2 in table, len(table))
    table.clear()
    assert (None, False) == (table.find(b"other"), 2 in table)
