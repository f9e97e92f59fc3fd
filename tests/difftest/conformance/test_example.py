"""The example of an allocator that is not vLLM: it conforms, and each way to break it is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import kvgate.conformance
from examples.paged.adapter import CAPABILITIES, Adapter
from examples.paged.allocator import Page, PagedAllocator
from kvgate.conformance import Report
from kvreference.settings import Settings

OPERATIONS = 4_000


class _Counted(PagedAllocator):
    """Counts what was lost for others."""

    lost = 0

    def forget(self, page: Page) -> None:
        _Counted.lost += page.key is not None
        super().forget(page)


class _TakesWhatWasFound(PagedAllocator):
    def grow(self, request: str, tokens: int, found: Sequence[Page] = ()) -> list[Page] | None:
        table = self.tables.get(request, list(found))
        missing = max(0, -(-tokens // self.page_tokens) - len(table))
        new = self.free()[:missing]
        if missing > len(new):
            return None
        if request not in self.tables:
            self.tables[request], self.published[request] = table, len(table)
            self._hold(table)
        for page in new:
            self.forget(page)
        self._hold(new)
        table.extend(new)
        return new


class _ServesTheLastToken(PagedAllocator):
    def find(self, tokens: Sequence[int], namespace: str) -> list[Page]:
        return super().find([*tokens, 0], namespace)


class _KeepsTheLastPage(PagedAllocator):
    def release(self, request: str) -> None:
        self.tables[request].pop()
        super().release(request)


class _ForgetsThePrefix(PagedAllocator):
    def keys_of(self, tokens: Sequence[int], namespace: str) -> list[bytes]:
        size = self.page_tokens
        pieces = [tokens[end - size : end] for end in range(size, len(tokens) + 1, size)]
        return [super(_ForgetsThePrefix, self).keys_of(piece, namespace)[0] for piece in pieces]


class _KeepsTheLowerBits(PagedAllocator):
    def keys_of(self, tokens: Sequence[int], namespace: str) -> list[bytes]:
        return super().keys_of([token & 0xFFFF for token in tokens], namespace)


class _ServesWhatIsGone(PagedAllocator):
    def forget(self, page: Page) -> None:
        page.key = None


class _ForgetsMore(PagedAllocator):
    """Forgets a page's content as soon as no request holds it. So no hit is ever served, which no eviction order
    explains.
    """

    def release(self, request: str) -> None:
        pages = self.tables[request]
        super().release(request)
        for page in pages:
            if page.holders == 0:
                self.forget(page)


def _checked(allocator: Callable[[int, int, bool], PagedAllocator]) -> Report:
    def build(settings: Settings) -> Adapter:
        adapter = Adapter(settings)
        size = settings.geometry.groups[0].block_size_tokens
        adapter.allocator = allocator(settings.blocks - 1, size, settings.caches)
        return adapter

    return kvgate.conformance.run(build, models=["full"], operations=OPERATIONS, capabilities=CAPABILITIES)


def test_the_example_conforms() -> None:
    """Goal: another eviction order is not a defect. Method: the example under pressure, which loses contents."""
    _Counted.lost = 0
    report = _checked(_Counted)
    assert report.passed, report.text()
    assert report.verdict.operations >= OPERATIONS
    assert _Counted.lost > 50


@pytest.mark.ci
@pytest.mark.parametrize(
    ("broken", "statements"),
    [
        (_TakesWhatWasFound, {"KV-OP-05", "KV-OP-04", "KV-INV-04", "KV-SYS-01"}),
        (_ServesTheLastToken, {"KV-OP-01"}),
        (_KeepsTheLastPage, {"KV-INV-01", "KV-OP-07", "KV-SYS-01"}),
        (_ForgetsThePrefix, {"KV-OP-01", "KV-OP-09"}),
        (_KeepsTheLowerBits, {"KV-OP-01", "KV-OP-09"}),
        (_ServesWhatIsGone, {"KV-INV-05", "KV-OP-01"}),
        (_ForgetsMore, {"KV-OP-08"}),
    ],
)
def test_each_break_is_found(broken: type[PagedAllocator], statements: set[str]) -> None:
    """Goal: following the order hides nothing else. Method: one fault each, found as the guarantee that it breaks."""
    report = _checked(broken)
    assert not report.passed
    seen = {found.divergence.difference.statement for found in report.verdict.found}
    assert seen & statements, report.text()
