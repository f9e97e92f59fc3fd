"""Finding 080: vLLM-Ascend counts a block too many in each step of a request that has a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.geometry import Group
from kvreference.holdings import Span, blocks_to_have
from kvreference.rules import Delta


def _one_more(to_have: Callable[..., int], groups: Sequence[Group], span: Span, hit_tokens: int, taken: int) -> int:
    """Tokens computed before the step that are not part of its hit are taken for a load that needs a block."""
    loads = span.tokens > 0 and span.computed > hit_tokens
    return to_have(groups, span, hit_tokens, taken) + loads * _states(groups)


def _states(groups: Sequence[Group]) -> int:
    """How many groups of states there are."""
    return sum(group.keeps_states for group in groups)


FINDING = Finding(
    id="080-each-step-counts-a-state-too-many",
    rank=18,
    statement="KV-OP-04",
    condition="a group of states, and a request with computed tokens",
    where=lambda settings: settings.geometry.keeps_states,
    acts=lambda *_run: Acts([Delta(blocks_to_have.__name__, _one_more)]),
    holds=lambda ideal, answered, groups, span, *_rest: span.computed > 0 and answered - ideal == _states(groups),
)
