"""The alphabet: everything that can be asked of a block manager, as values.

An operation names a request by its number. Which requests an operation may name depends on the live requests
(``kvreference.population``). A number that does not fit is mapped onto one that does, so that every part of a list of
operations is again a legal list.

Token ids are written as runs: ``Run(first, length)`` stands for ``first, first + 1, …``. Two prompts share a prefix as
long as their runs agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge, instance_of, min_len

from kvreference.content import Keys, Media

_number = [instance_of(int), ge(0)]
_count = [instance_of(int), ge(1)]


@frozen
class Run:
    """``length`` consecutive token ids, from ``first`` on."""

    first: int = field(validator=_number)
    length: int = field(validator=_count)


def spell(runs: Iterable[Run]) -> list[int]:
    """The token ids that ``runs`` stand for."""
    return [token for run in runs for token in range(run.first, run.first + run.length)]


@frozen
class OfRequest:
    """An operation on one request, named by its number."""

    request: int = field(validator=_number)


@frozen
class Arrive(OfRequest):
    """A request arrives and waits. Takes the next free number if ``request`` is taken."""

    prompt: tuple[Run, ...] = field()
    keys: Keys = field(factory=Keys)
    reads_cache: bool = True
    """Whether the request may be served from the prefix cache; with prompt log-probabilities it may not."""

    @prompt.validator
    def _has_a_token(self, _attribute: object, prompt: tuple[Run, ...]) -> None:
        if not prompt:
            raise ValueError("a prompt needs at least one token")


@frozen
class LookUp(OfRequest):
    """Ask for the longest prefix-cache hit of a waiting request; nothing is taken."""


@frozen
class Admit(OfRequest):
    """Admit a waiting request: look up, pass the admission gate, allocate for its first chunk."""

    tokens: int = field(validator=_count)
    """The token budget: at most this many tokens are computed in this step."""
    external_tokens: int = field(default=0, validator=_number)
    """How many tokens after the hit another node's cache provides; never the request's last one if at once."""
    loads: bool = False
    """Whether the external tokens arrive later: nothing is computed now, and the request waits for ``Transferred``."""


@frozen
class Schedule(OfRequest):
    """Allocate for the next tokens of a running request: a prefill chunk, or a decode step with its drafts."""

    tokens: int = field(validator=_count)


@frozen
class Sample(OfRequest):
    """The model answers: some drafts are accepted, the rest rejected, one token is sampled, new drafts are proposed."""

    accepted: int = field(validator=_number)
    token: int = field(validator=_number)
    """The sampled token; the drafts proposed after it are the token ids that follow it."""
    drafts: int = field(validator=_number)
    beyond: int = field(default=0, validator=_number)
    """How many drafts more hold, and come after the last token that the request may have. It ends then."""


@frozen
class Preempt(OfRequest):
    """A running request loses its blocks and waits again, with all its tokens."""


@frozen
class Finish(OfRequest):
    """A running request ends."""

    sends: bool = False
    """Whether another node still reads its blocks: they stay held until ``Transferred``."""


@frozen
class Abort(OfRequest):
    """A request ends, wherever it stands; while it loads, its blocks stay held until ``Transferred``."""


@frozen
class Transferred(OfRequest):
    """A transfer is over: what a request was loading has arrived or failed, or what an ended one sent was read."""

    succeeded: bool = True
    """Whether everything arrived; if not, the request waits again with nothing computed."""


@frozen
class Rewind(OfRequest):
    """A load failed: of what a request has, or loads, only the first ``tokens`` tokens are valid.

    The tokens after them are computed again, in the same blocks. Until then, none of them may serve a hit. If a window
    has released what the first of them reads, nothing counts as computed, and the blocks are freed: when its load is
    over, if the request waits for it.
    """

    tokens: int = field(validator=_number)


@frozen
class Pause(OfRequest):
    """A part of a session has ended with its last answer: the request keeps its blocks, and waits for ``Continue``."""


@frozen
class Continue(OfRequest):
    """The next part of a session's prompt comes, in place of the last answer, which was never computed."""

    prompt: tuple[Run, ...] = field(validator=min_len(1))
    media: tuple[Media, ...] = ()
    """Its multimodal items, by their places in this part."""


@frozen
class ReleaseSkipped(OfRequest):
    """Release the blocks of a running request, or of a session between its parts, that no later token reads."""


@frozen
class CommonPrefix(OfRequest):
    """Ask how many leading blocks of a running request every request with blocks shares, per group."""


@frozen
class Evict:
    """Forget the content of one block; its holder keeps it."""

    block: int = field(validator=_number)


@frozen
class Dispatch:
    """The step that was scheduled goes to the worker, which copies first and then computes.

    Until then nothing else happens to the requests in it. It matters only where blocks are copied.
    """


@frozen
class Reset:
    """Forget all content, provided that no block is held."""


@frozen
class TakeEvents:
    """Take the KV events since the last time."""


@frozen
class TakeStatistics:
    """Take the prefix-cache statistics since the last time."""


Operation: TypeAlias = (
    Arrive
    | LookUp
    | Admit
    | Schedule
    | Sample
    | Preempt
    | Finish
    | Abort
    | Transferred
    | Rewind
    | Pause
    | Continue
    | ReleaseSkipped
    | CommonPrefix
    | Evict
    | Dispatch
    | Reset
    | TakeEvents
    | TakeStatistics
)
