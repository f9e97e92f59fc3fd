"""The reference as a system under test: it is checked against itself."""

from __future__ import annotations

from collections.abc import Mapping

from kvreference.manager import Manager


class Reference(Manager):
    """The reference under the gate's protocol."""

    def roots(self) -> Mapping[str, object]:
        return {"tables": self.tables, "pool": self.pool, "prefixes": self.prefixes}

    def name_of(self, request: int) -> str:
        return str(request)
