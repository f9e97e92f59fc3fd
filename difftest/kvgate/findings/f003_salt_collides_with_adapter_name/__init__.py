"""Finding 003: A cache salt that is named like a LoRA adapter shares the adapter's first block."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.findings.finding import Finding
from kvreference.choices import Choices
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.manager import OWN, Manager
from kvreference.settings import Settings


class SaltNamedLikeAnAdapter(Manager):
    """Nothing tells whether a name is that of a salt or of an adapter."""

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        super().__init__(settings, choices)
        self._interned = _PrefixesWithoutDomains(self.geometry.grain_tokens)


class _PrefixesWithoutDomains(Prefixes):
    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        grain = self.grain_tokens
        parent = known[-1] if known else self._child(None, (), 0)
        for start in range(len(known) * grain, len(tokens) - grain + 1, grain):
            names = tuple((key.name, key.offset_tokens) for key in keys.of_block(start, start + grain))
            parent = self._child(parent, (tuple(tokens[start : start + grain]), names), start + grain)
            known.append(parent)


FINDING = Finding(
    id="003-salt-collides-with-adapter-name",
    rank=4,
    fault=SaltNamedLikeAnAdapter,
)
