"""Finding 014: Of several groups of full attention only the first is cut to the hit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from kvgate.findings.explaining import looks_up_with
from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import HitsPastLoad
from kvreference.answers import Hit
from kvreference.geometry import Geometry, Group
from kvreference.population import Request


class SecondGroupUncut(HitsPastLoad):
    """Of several kinds of full attention only the first is cut to the hit; the others keep what they had found."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        groups, alignment = self.geometry.groups, self.geometry.alignment_tokens
        kinds = list(dict.fromkeys(group for group in groups if group.keeps_all))
        blocks, tokens = list(hit.blocks), len(request.tokens) - 1
        for kind in kinds:
            alike = [index for index, group in enumerate(groups) if group == kind]
            tokens = min(self._leading(request, alike, kind, tokens)) // alignment * alignment
            if kind != kinds[0]:
                for index in alike:
                    kept = (self._block(request, index, i) for i in range(tokens // kind.block_size_tokens))
                    blocks[index] = tuple(block for block in kept if block is not None)
        return evolve(hit, blocks=tuple(blocks))

    def _leading(self, request: Request, groups: list[int], kind: Group, tokens: int) -> Iterator[int]:
        """How many leading tokens are cached in each of ``groups``, of ``tokens`` at most."""
        for index in groups:
            end = tokens // kind.block_size_tokens
            found = next((i for i in range(end) if self._block(request, index, i) is None), end)
            yield found * kind.block_size_tokens

    def _block(self, request: Request, group: int, index: int) -> int | None:
        return self.pool.cached.find(self.content(request.number, group, index))


class TablesPastLoad:
    """Live: where tables continue past what is loaded, fewer blocks than none may be taken."""

    def __init__(self) -> None:
        self.blocks = 0
        self._suspected = 0

    def admit(self, geometry: Geometry, call: Any, hit: Hit) -> None:
        """Note an allocation."""
        self._suspected = 0
        if call.is_first and call.external_tokens:
            end = call.computed + hit.tokens + call.external_tokens
            self._suspected = sum(
                max(0, len(blocks) - group.blocks_occupied(end))
                for group, blocks in zip(geometry.groups, hit.blocks, strict=True)
                if group.keeps_all
            )

    def explains(self, expected: int, got: int) -> bool:
        """Whether the finding explains the count; if so, it is expected from now on."""
        suspected, self._suspected = self._suspected, 0
        if not suspected or got != expected + suspected:
            return False
        self.blocks += suspected
        return True


FINDING = Finding(
    id="014-second-full-group-not-cut",
    rank=13,
    fault=SecondGroupUncut,
    explains_hit=looks_up_with(SecondGroupUncut),
    miscount=TablesPastLoad,
)
