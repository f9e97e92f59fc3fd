"""The registration of boundaries inside blocks.

Goal: the plug-in offers what the reference offers, and when it does, each boundary once; and a step that reaches
nothing costs one comparison. Method: requests that grow in random steps, on the plug-in's side and the reference's; and
a counted decode on vLLM's own manager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvreference.compressed import Tokens, with_partial_hits
from kvreference.geometry import Geometry
from kvreference.geometry import Group as ReferenceGroup
from kvreference.operations import Admit, Arrive, Dispatch, Operation, Run, Sample, Schedule
from kvreference.retention import Dense, Retention, Sparse, replay_boundary
from kvreference.settings import Settings
from swa_retention.partial.boundaries import Boundaries, key_of
from swa_retention.partial.groups import Group
from swa_retention.partial.registration import Admitted, Cursor, reached

GEOMETRY = with_partial_hits(
    Geometry(
        (
            ReferenceGroup("full", 32, compress_ratio=8),
            ReferenceGroup("full", 64, compress_ratio=8, lookahead=True),
            ReferenceGroup("sliding_window", 8, 20),
        )
    ),
    Tokens(8),
)
COPYING = [
    Group(index, group.block_size_tokens, group.lookahead_tokens, True, True, lambda _tokens: 0)
    for index, group in enumerate(GEOMETRY.groups)
    if group.copies
]


def expected(retention: Retention, start: int, end: int, prompt: int) -> set[tuple[int, int]]:
    """The reference's offers between ``start`` and ``end`` tokens: ends of blocks, and entries."""
    found = set()
    for index, group in enumerate(GEOMETRY.groups):
        if not group.copies:
            continue
        size, lookahead = group.block_size_tokens, group.lookahead_tokens
        found |= {(index, tokens) for tokens in range(1, end + 1) if tokens > start and tokens % size == 0}
        for boundary in retention.boundaries(start, end - lookahead, prompt):
            if group.tokens_matched(boundary) % size:
                found.add((index, group.tokens_matched(boundary)))
    return found


@pytest.mark.parametrize("interval", [None, 0, 8, 24, 40])
def test_as_the_reference_says(interval: int | None) -> None:
    """Each once, and at once, with tokens one by one or in chunks, after a hit or not, with a junction or not."""
    random = Random(5)
    whole: Retention = Dense(GEOMETRY) if interval is None else Sparse(GEOMETRY, interval)
    for _ in range(100):
        prompt, hit = random.randrange(1, 200), 8 * random.randrange(12)
        junction = 8 * random.choice((0, random.randrange(12)))
        retention = whole.at_junction(junction)
        cursor = Cursor(hit, [hit] * len(COPYING), (replay_boundary(GEOMETRY, prompt), junction))
        seen: list[tuple[int, int]] = []
        tokens = hit
        while tokens < 260:
            tokens += random.choice((1, 1, 1, 3, 7, 50))
            awake = tokens >= cursor.wake_tokens
            new = [(group.index, end) for group, end in reached(COPYING, Admitted(8, interval), cursor, tokens)]
            assert awake or not new
            seen += new
            assert expected(retention, hit, tokens, prompt) == set(seen)
        assert len(set(seen)) == len(seen)


def test_a_decode_step_between_boundaries_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is made and no table is touched, after 48 tokens or after 1000: each boundary costs once."""
    pytest.importorskip("vllm")
    work = Counter[str]()

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            work[name] += 1
            return original(*arguments)

        return count

    monkeypatch.setattr("swa_retention.partial.hits.key_of", counted("key", key_of))
    monkeypatch.setattr("swa_retention.partial.hits.reached", counted("reached", reached))
    for name in ("register", "find", "__contains__"):
        monkeypatch.setattr(Boundaries, name, counted(name, getattr(Boundaries, name)))
    for prompt in (48, 1008):
        geometry = load("compressed+partial").geometry
        system = load_system("retention").factory(Settings(geometry, 400, tokens_max=4096, chunk_tokens=2048))
        begin: tuple[Operation, ...] = (Arrive(0, (Run(0, prompt),)), Admit(0, 2048), Dispatch(), Sample(0, 0, 7, 0))
        step: tuple[Operation, ...] = (Schedule(0, 1), Dispatch(), Sample(0, 0, 7, 0))
        for operation in begin:
            system.apply(operation)
        steps = []
        for _ in range(40):
            work.clear()
            for operation in step:
                system.apply(operation)
            steps.append(dict(work))
        busy = {tokens: done for tokens, done in enumerate(steps, start=prompt + 1) if done}
        # Boundaries lie at every 16 tokens in blocks of 32 and of 64; at 64 and at 1024 both end, and 1040 is in both.
        assert [tokens for tokens in range(prompt + 1, prompt + 41) if tokens % 16 == 0] == list(busy)
        assert all(done["reached"] == 1 and done["key"] <= 2 for done in busy.values())
