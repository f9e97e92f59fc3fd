"""Finding 004: The block in which the prompt ends forgets all multimodal items but the last."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvgate.findings.finding import Finding
from kvreference.choices import Choices
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.manager import OWN, Manager
from kvreference.settings import Settings


class MediaForgottenInPromptTail(Manager):
    """What the prompt does not fill depends on the last multimodal item alone."""

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        super().__init__(settings, choices)
        self._interned = _PrefixesWithLastMedia(self.geometry.grain_tokens)


class _PrefixesWithLastMedia(Prefixes):
    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        super().extend(known, tokens, evolve(keys, media=keys.media[-1:]) if known else keys)


FINDING = Finding(
    id="004-media-forgotten-in-prompt-tail",
    rank=5,
    fault=MediaForgottenInPromptTail,
)
