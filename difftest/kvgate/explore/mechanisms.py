"""The mechanisms of the reference: which models show each, driven at random and explored exhaustively.

Driving finds what a large scope hides and says how often; exploring finds everything in a tiny scope. Both check every
state by the reference's own invariants and every step by the ghost memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from kvgate.kernel.errors import UsageError


@frozen
class Mechanism:
    """One mechanism, and where it is looked at."""

    name: str
    models: tuple[str, ...]
    """What is driven at random; see ``kvgate.kernel.models``. Without any, its tiny models are."""
    tiny: tuple[str, ...]
    """What is explored; see ``kvgate.explore.tiny_models``."""
    witnesses: tuple[str, ...]
    """What must have happened while it was driven, or the mechanism was not looked at; see ``kvgate.explore.drive``."""


_ALL = (
    Mechanism(
        "sharing",
        ("full", "swa", "gemma-hybrid", "two-windows"),
        ("tiny-full", "tiny-swa", "tiny-hybrid", "tiny-mixed"),
        ("hits", "shared blocks", "evictions by id", "resets"),
    ),
    Mechanism(
        "masked caching",
        ("mixed-blocks+masked", "mixed-blocks+masked+scratch", "mixed-blocks+mtp+masked+scratch"),
        ("tiny-masked",),
        ("hits", "full blocks not cached"),
    ),
    Mechanism(
        "retention",
        (
            "gpt-oss-hybrid+retention+scratch",
            "mixed-blocks+retention=128+scratch",
            "mixed-blocks+eagle+retention=64+scratch",
            "mamba-all+retention=64+scratch",
        ),
        ("tiny-retention", "tiny-replay"),
        ("hits", "full blocks not cached"),
    ),
    Mechanism(
        "junctions",
        (
            "gpt-oss-hybrid+retention+junctions+scratch",
            "mixed-blocks+mtp+retention=64+junctions+scratch",
            "compressed+partial+retention+junctions+scratch",
        ),
        ("tiny-junction",),
        ("hits", "full blocks not cached"),
    ),
    Mechanism(
        "EAGLE/MTP",
        ("gemma-hybrid+eagle", "two-windows+eagle", "mixed-blocks+mtp"),
        ("tiny-eagle",),
        ("hits", "drafts accepted", "drafts rejected"),
    ),
    Mechanism(
        "compressed groups",
        ("dsv4-flash", "dsv4-flash+mtp", "compressed", "compressed+eagle"),
        ("tiny-compressed",),
        ("hits",),
    ),
    Mechanism(
        "partial hits",
        ("compressed+partial", "compressed+mtp+partial+masked+scratch", "compressed+eagle+partial+transfers"),
        ("tiny-partial",),
        ("hits", "copies"),
    ),
    Mechanism(
        "pinned tier",
        ("gemma-hybrid+pinned=2", "gpt-oss-hybrid+pinned+scratch", "mixed-blocks+pinned=1+masked+scratch"),
        ("tiny-pinned", "tiny-loopholes"),
        ("hits", "pinned blocks", "demotions"),
    ),
    Mechanism("chunked local attention", ("local",), ("tiny-local",), ("hits",)),
    Mechanism(
        "Mamba",
        ("mamba-none+eagle", "mamba-all+eagle", "mamba-align", "mamba-align+eagle+transfers"),
        ("tiny-mamba-all", "tiny-mamba-align"),
        ("hits", "drafts accepted", "drafts rejected"),
    ),
    Mechanism(
        "transfers",
        ("gemma-hybrid+transfers", "mixed-blocks+mtp+transfers+masked+scratch"),
        ("tiny-transfers",),
        ("external tokens", "loads", "failed loads", "sends"),
    ),
    Mechanism(
        "steps in flight",
        (),
        ("tiny-ahead", "tiny-ahead-late", "tiny-ahead-drafts", "tiny-ahead-loads", "tiny-ahead-preempted"),
        (),
    ),
    Mechanism(
        "scheduler",
        ("full", "gemma-hybrid+eagle", "mixed-blocks+transfers"),
        (
            "tiny-scheduler",
            "tiny-scheduler-tight",
            "tiny-scheduler-line",
            "tiny-scheduler-sends",
            "tiny-scheduler-drafts",
        ),
        ("hits",),
    ),
)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType({mechanism.name: mechanism for mechanism in _ALL})
"""The mechanisms, by name."""


def load(name: str) -> Mechanism:
    """The mechanism called ``name``.

    Raises:
        UsageError: the mechanism is unknown.
    """
    if name not in MECHANISMS:
        raise UsageError(f"unknown mechanism {name!r}: give one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name]
