"""Decisions that a release may make differently by design, equally correct: each default is the reference's choice.

Where a release is wrong, ``rules`` has a delta: it is never a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from kvreference.answers import Answer
from kvreference.holdings import Holdings
from kvreference.operations import Operation
from kvreference.prefix_cache import NoPrefixCache, new_cache
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings


def _as_the_reference(manager: Any, operation: Operation) -> Answer:
    answer: Answer = manager.perform(operation)
    return answer


@frozen
class Choices:
    """The choices of one release and its scheduler."""

    holdings: Callable[[Settings, Rules], Holdings] = Holdings
    """Where blocks come from, and in which order they are released."""
    cache: Callable[[Settings, Rules], NoPrefixCache] = new_cache
    """What is cached, and what a look-up finds."""
    promises_scratch_first: bool = True
    """Whether scratch stands before all else whenever the settings say scratch first, or only after a release."""
    lookahead_when_admitted: bool = False
    """Whether an admitted request gets look-ahead slots with its first tokens, except for a load."""
    caches_answers: bool = False
    """Whether, where anything is drafted, what an answer fills is cached with it, and not at the next allocation."""
    rules: Rules = OWN_RULES
    """The rules of the reference, with the deltas of the release."""
    blocks_reserved: Mapping[int, int] = field(factory=dict)
    """By the number of an operation, how many blocks its admission must leave free."""
    perform: Callable[[Any, Operation], Answer] = _as_the_reference
    """How an operation is performed: a scheduler may do more before and after it.

    It gets the manager, whose module imports this one, and so its type is not named here.
    """
