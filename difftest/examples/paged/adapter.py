"""What ties the paged allocator to kvgate: it performs each operation as a scheduler would, and shows the state.

The scheduler's books, who waits and who runs and how many tokens are computed, come with kvgate: ``Population``.
"""

from __future__ import annotations

from collections.abc import Mapping

from examples.paged.allocator import Page, PagedAllocator
from kvgate.conformance import Capabilities
from kvreference.answers import Answer, Done, Granted, Hit, Refused, Success
from kvreference.attention import Kind
from kvreference.operations import Abort, Admit, Evict, Finish, LookUp, Operation, Preempt, Reset, Schedule
from kvreference.population import Population, Request
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

CAPABILITIES = Capabilities(
    order="any", drafts=False, gate=False, keys=False, events=False, statistics=False, common_prefix=False
)
"""Pages in an order of its own, and none of what only some allocators have."""


class Adapter:
    """The allocator under kvgate's protocol, ``kvgate.kernel.protocol.System``."""

    def __init__(self, settings: Settings) -> None:
        groups = settings.geometry.groups
        if len(groups) != 1 or groups[0].kind is not Kind.FULL or groups[0].lookahead:
            raise ValueError("the paged allocator serves one group of full attention, without a draft layer")
        self.settings = settings
        self.population = Population(settings)
        # Block 0 is kvgate's null block, which stands for no page.
        self.allocator = PagedAllocator(settings.blocks - 1, groups[0].block_size_tokens, settings.caches)

    def apply(self, operation: Operation) -> Answer:
        answer = self._perform(operation)
        self.population.settle(operation, answer)
        return answer

    def _perform(self, operation: Operation) -> Answer:
        match operation:
            case LookUp(request=number):
                pages = self._find(self.population[number])
                return Hit(len(pages) * self.allocator.page_tokens, (tuple(page.number for page in pages),))
            case Admit(request=number, tokens=budget):
                request = self.population[number]
                pages = self._find(request)
                return self._grow(request, len(pages) * self.allocator.page_tokens, budget)
            case Schedule(request=number, tokens=budget):
                return self._grow(self.population[number], 0, budget)
            case Preempt(request=number) | Finish(request=number) | Abort(request=number):
                if self.name_of(number) in self.allocator.tables:
                    self.allocator.release(self.name_of(number))
            case Evict(block=block):
                self.allocator.forget(self.allocator.pages[block - 1])
            case Reset():
                return Success(self.allocator.clear())
        return Done()

    def _find(self, request: Request) -> list[Page]:
        return self.allocator.find(request.tokens, "") if request.reads_cache else []

    def _grow(self, request: Request, hit: int, budget: int) -> Answer:
        computed = request.tokens_computed + hit
        end = computed + self.population.tokens_from(request, computed, budget)
        name = self.name_of(request.number)
        found = self._find(request) if hit else []
        new = self.allocator.grow(name, end, found)
        if new is None:
            return Refused(hit, gate=False)
        self.allocator.publish(name, request.tokens[:end], "")
        return Granted(hit, (tuple(page.number for page in new),))

    def snapshot(self) -> Snapshot:
        pages, free = self.allocator.pages, self.allocator.free()
        return Snapshot(
            tables={
                number: [[page.number for page in self.allocator.tables[name]]]
                for number in self.population.alive
                if (name := self.name_of(number)) in self.allocator.tables
            },
            references=[0, *(page.holders for page in pages)],
            free=[page.number for page in free],
            blocks_free=len(free),
            contents=[None, *(page.key for page in pages)],
            read_entries=lambda: {key: [page.number for page in pages] for key, pages in self.allocator.cache.items()},
        )

    def roots(self) -> Mapping[str, object]:
        return {"allocator": self.allocator}

    def name_of(self, request: int) -> str:
        return f"request {request}"
