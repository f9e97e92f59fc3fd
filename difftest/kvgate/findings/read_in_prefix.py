"""Which prefix a state belongs to that a request reads. Findings 036 and 041."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kvgate.monitors.slot_memory import Origin
from kvreference.content import Prefix


def is_in(prefix: Prefix, history: Sequence[Origin]) -> bool:
    """Whether the state with that history is of one of the tokens of the prefix, with its salt and adapter's name."""
    (_, (salt, adapter), _), *origins = cast(Sequence[Any], history)
    pieces: Any = prefix.pieces
    names = {name.domain: name.name for name in pieces[0][1] if name.domain in ("salt", "lora")}
    lora = None if adapter is None else adapter.partition("#")[0]
    tokens = [token for tokens, _ in pieces for token in tokens]
    read = [token for _, token, _ in origins]
    return (names.get("salt"), names.get("lora")) == (salt, lora) and tokens[: len(read)] == read
