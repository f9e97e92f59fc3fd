"""Finding 003: A cache salt that is named like a LoRA adapter shares the adapter's first block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread, Origin
from kvreference.content import ExtraKey, Keys, names_of_piece
from kvreference.rules import Delta

_Names = tuple[ExtraKey, ...]


def _acts(*_run: object) -> Acts:
    first: dict[tuple[tuple[str, int | None], ...], _Names] = {}

    def without_domains(
        names_of: Callable[..., _Names], keys: Keys, start_tokens: int, end_tokens: int, known_tokens: int
    ) -> _Names:
        """Names that differ in their domains alone count as those that came first."""
        names = names_of(keys, start_tokens, end_tokens, known_tokens)
        return first.setdefault(tuple((key.name, key.offset_tokens) for key in names), names)

    return Acts([Delta(names_of_piece.__name__, without_domains)], misreads=_of_the_other_domain)


def _of_a_salt_and_an_adapter(ideal: _Names, answered: _Names, *_arguments: object) -> bool:
    return {"salt", "lora"} <= {key.domain for key in (*ideal, *answered)}


def _of_the_other_domain(misread: Misread) -> bool:
    """The state is that of the same tokens, with a salt where the other has an adapter of that name."""
    wanted, found = misread.wanted, misread.found
    return bool(found) and _names(wanted) == _names(found) and _tokens(wanted) == _tokens(found)


def _names(history: Sequence[Origin]) -> list[object]:
    salt, lora = cast("tuple[str | None, str | None]", history[0][1])
    return [name for name in (lora, salt) if name is not None]


def _tokens(history: Sequence[Origin]) -> list[Origin]:
    return [origin[1:] for origin in history[1:]]


FINDING = Finding(
    id="003-salt-collides-with-adapter-name",
    rank=5,
    statement="KV-OP-01",
    condition="a salt and an adapter of the same name",
    acts=_acts,
    holds=_of_a_salt_and_an_adapter,
)
