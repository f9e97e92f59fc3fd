"""Which prefix a state belongs to that a request reads. Findings 036 and 041."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kvgate.monitors.slot_memory import Origin
from kvreference.content import Prefix


def is_in(prefix: Prefix, history: Sequence[Origin]) -> bool:
    """Whether the state with that history is of one of the tokens of the prefix, with its salt and adapter's name.

    Each release that has 036 or 041 has 003, too: which of the two a name is of, its prefixes do not say.
    """
    (_, (salt, adapter), _), *origins = cast(Sequence[Any], history)
    pieces: Any = prefix.pieces
    names = [name.name for name in pieces[0][1] if name.domain in ("salt", "lora")]
    lora = None if adapter is None else adapter.partition("#")[0]
    tokens = [token for tokens, _ in pieces for token in tokens]
    read = [token for _, token, _ in origins]
    return names == [name for name in (lora, salt) if name is not None] and tokens[: len(read)] == read
