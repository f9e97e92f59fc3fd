"""Content identities matched one to one.

Goal: no system may use one identity for two contents, nor two for one. Method: every violation of a relation, each with
a pair that keeps it.
"""

from __future__ import annotations

import pytest

from kvgate.kernel.comparison import Correspondence


@pytest.fixture
def related() -> Correspondence:
    """A correspondence in which ``ours`` stands for ``theirs``."""
    correspondence = Correspondence()
    assert correspondence.relate("ours", "theirs")
    return correspondence


def test_a_pair_is_related_from_its_first_appearance_on(related: Correspondence) -> None:
    """And so is a second pair of two that are both new."""
    assert related.relate("ours", "theirs")
    assert related.relate("other", "another")


def test_two_contents_under_one_identity_are_rejected(related: Correspondence) -> None:
    """A foreign hit to come."""
    assert not related.relate("other", "theirs")


def test_one_content_under_two_identities_is_rejected(related: Correspondence) -> None:
    """A hit that will be missed."""
    assert not related.relate("ours", "another")


def test_what_was_rejected_is_not_remembered(related: Correspondence) -> None:
    """The new side of a rejected pair is still new."""
    assert not related.relate("other", "theirs")
    assert related.relate("other", "another")


def test_nothing_corresponds_to_nothing_alone(related: Correspondence) -> None:
    """A block without content stands for no content on the other side."""
    assert related.relate(None, None)
    assert not related.relate(None, "new")
    assert not related.relate("new", None)


def test_what_was_related_can_be_asked_for(related: Correspondence) -> None:
    """In bulk in one direction; identities that never appeared have no partner."""
    assert ["theirs", None, None] == related.theirs(["ours", None, "never seen"])
    assert "ours" == related.ours("theirs")
    with pytest.raises(KeyError):
        related.ours("never seen")
