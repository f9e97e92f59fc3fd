"""Finding 004: The block in which the prompt ends forgets all multimodal items but the last."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.content import ExtraKey, Keys, names_of_piece
from kvreference.rules import Delta
from kvreference.settings import Settings


def _forgets(
    names_of: Callable[..., tuple[ExtraKey, ...]], keys: Keys, start_tokens: int, end_tokens: int, known_tokens: int
) -> tuple[ExtraKey, ...]:
    """What the prompt does not fill depends on the last multimodal item alone."""
    names = names_of(keys, start_tokens, end_tokens, known_tokens)
    if not known_tokens or not keys.media:
        return names
    last = keys.media[-1].offset_tokens - start_tokens
    return tuple(name for name in names if name.domain != "media" or name.offset_tokens == last)


def _of_earlier_items(
    ideal: tuple[ExtraKey, ...],
    answered: tuple[ExtraKey, ...],
    keys: Keys,
    start_tokens: int,
    end_tokens: int,
    _known: int,
) -> bool:
    """What is left out are the items before the last one that reach into the piece, and nothing else."""
    earlier = evolve(keys, media=keys.media[:-1]).media_within(start_tokens, end_tokens)
    return [name for name in ideal if name not in answered] == [ExtraKey("media", *item) for item in earlier]


def _acts(settings: Settings, _release: str) -> Acts:
    grain = settings.geometry.grain_tokens

    def of_other_media(misread: Misread) -> bool:
        """The state is that of the same tokens, with other items in the last piece of the prompt."""
        wanted, found = misread.wanted, misread.found
        if not found or len(wanted) != len(found) or wanted[0] != found[0]:
            return False
        differs = [at for at, (one, other) in enumerate(zip(wanted, found, strict=True)) if one[1:] != other[1:]]
        # Salt and adapter come before the first token.
        tail = 1 + misread.reader.prompt_tokens // grain * grain
        return bool(differs) and all(at >= tail and wanted[at][1] == found[at][1] for at in differs)

    return Acts([Delta(names_of_piece.__name__, _forgets)], misreads=of_other_media)


FINDING = Finding(
    id="004-media-forgotten-in-prompt-tail",
    # What 003 takes for equal are the names that are left.
    rank=4,
    statement="KV-OP-09",
    condition="several multimodal items, of which one but the last reaches into the piece in which the prompt ends",
    acts=_acts,
    holds=_of_earlier_items,
)
