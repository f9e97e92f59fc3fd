"""Token ids with a meaning: a token tells its family, its track and its position.

Families are prompts that share nothing. All have the same shape, so any two may change places without a difference
to a block manager; that is a symmetry which the explorer uses. Within a family there are two tracks: requests on the
same track agree from position 0 on, for as long as neither changes over to the other.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge

from kvreference.operations import Run

_FAMILY = 1000
_TRACK = 100
TRACKS = 2


def token_at(family: int, track: int, position: int) -> int:
    """The id of the token at ``position`` on a track of a family."""
    return family * _FAMILY + track * _TRACK + position


def family_of(token: int) -> int:
    """The family that a token belongs to."""
    return token // _FAMILY


def track_of(token: int) -> int:
    """The track that a token lies on."""
    return token % _FAMILY // _TRACK


def within_family(token: int) -> int:
    """What a token is besides its family: its track and position."""
    return token % _FAMILY


@frozen
class Prompt:
    """The shape of a prompt, the same in every family."""

    length_tokens: int = field(validator=ge(1))
    diverges_at: int | None = None
    """The position, in tokens, where it leaves the first track for the second; None if it does not."""

    def runs(self, family: int) -> tuple[Run, ...]:
        """The prompt of one family."""
        shared = self.length_tokens if self.diverges_at is None else self.diverges_at
        runs = (
            (token_at(family, 0, 0), shared),
            (token_at(family, 1, shared), self.length_tokens - shared),
        )
        return tuple(Run(first, length) for first, length in runs if length > 0)

    def __str__(self) -> str:
        branch = "" if self.diverges_at is None else f" leaving at {self.diverges_at}"
        return f"{self.length_tokens}{branch}"
