"""What the gate's requests are called in vLLM."""

from __future__ import annotations

_PREFIX = "kvgate-request-"


def name_of(number: int) -> str:
    """The name of a request."""
    return f"{_PREFIX}{number}"


def number_in(name: str) -> int:
    """The number in the name of a request."""
    return int(name.removeprefix(_PREFIX))
