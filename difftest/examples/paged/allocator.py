"""A paged KV-cache allocator that is not vLLM's: an example of what kvgate can be turned on.

It serves one group of full attention. Pages are allocated by least recent use, empty pages before any page that could
still serve a hit. A page's key is a digest chained over everything up to its end, and a dictionary says which pages
hold it. It knows nothing of kvgate: ``adapter.py`` is what ties the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


class Page:
    """One page of the pool: who holds it, what it holds, and when it was last used."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.holders = 0
        self.key: bytes | None = None
        self.used = 0


class PagedAllocator:
    """Pages for requests, and a cache of those that are full."""

    def __init__(self, pages: int, page_tokens: int, shares: bool) -> None:
        self.page_tokens = page_tokens
        self.shares = shares
        self.pages = [Page(number) for number in range(1, pages + 1)]
        self.tables: dict[str, list[Page]] = {}
        self.published: dict[str, int] = {}
        """Per request with pages, how many of them are in the cache or were found there."""
        self.cache: dict[bytes, list[Page]] = {}
        self.clock = 0

    def keys_of(self, tokens: Sequence[int], namespace: str) -> list[bytes]:
        """The key of every whole page of a request."""
        key, keys = blake2b(namespace.encode(), digest_size=16).digest(), []
        for end in range(self.page_tokens, len(tokens) + 1, self.page_tokens):
            piece = ",".join(map(str, tokens[end - self.page_tokens : end]))
            key = blake2b(key + piece.encode(), digest_size=16).digest()
            keys.append(key)
        return keys

    def find(self, tokens: Sequence[int], namespace: str) -> list[Page]:
        """The pages of the longest cached prefix; the last token is always left to compute."""
        found: list[Page] = []
        for key in self.keys_of(tokens[:-1], namespace) if self.shares else ():
            if key not in self.cache:
                break
            found.append(self.cache[key][-1])
        return found

    def free(self) -> list[Page]:
        """The pages that no request holds, in the order of allocation: empty pages, then by least recent use."""
        idle = [page for page in self.pages if page.holders == 0]
        return sorted(idle, key=lambda page: (page.key is not None, page.used, -page.number))

    def grow(self, request: str, tokens: int, found: Sequence[Page] = ()) -> list[Page] | None:
        """Give a request pages for its first ``tokens`` tokens, after those found for it; None if there are too few.

        Returns the new pages.
        """
        table = self.tables.get(request, list(found))
        missing = max(0, -(-tokens // self.page_tokens) - len(table))
        idle = [page for page in self.free() if page not in table]
        if missing > len(idle):
            return None
        if request not in self.tables:
            self.tables[request] = table
            self.published[request] = len(table)
            self._hold(table)
        new = idle[:missing]
        for page in new:
            self.forget(page)
        self._hold(new)
        table.extend(new)
        return new

    def publish(self, request: str, tokens: Sequence[int], namespace: str) -> None:
        """Put into the cache what ``tokens``, all computed, have filled."""
        if not self.shares:
            return
        table = self.tables[request]
        keys = self.keys_of(tokens, namespace)
        for place in range(self.published[request], len(keys)):
            table[place].key = keys[place]
            self.cache.setdefault(keys[place], []).append(table[place])
        self.published[request] = max(self.published[request], len(keys))

    def release(self, request: str) -> None:
        """A request ends or is preempted: its pages stay cached until they are reused."""
        self.clock += 1
        del self.published[request]
        for page in self.tables.pop(request):
            page.holders -= 1
            page.used = self.clock

    def forget(self, page: Page) -> None:
        """Drop the cached content of a page."""
        if page.key is not None:
            self.cache[page.key].remove(page)
            if not self.cache[page.key]:
                del self.cache[page.key]
            page.key = None

    def clear(self) -> bool:
        """Forget everything, if no request is alive."""
        if any(page.holders for page in self.pages):
            return False
        for page in self.pages:
            self.forget(page)
        return True

    def _hold(self, pages: Sequence[Page]) -> None:
        for page in pages:
            page.holders += 1
