"""Fixtures of all tests of the formal model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvspec.symbolic import collection_waits


@pytest.fixture(autouse=True)
def terms_are_freed_in_this_thread() -> Iterator[None]:
    """A test runner has threads too, and these tests make terms of their own."""
    with collection_waits():
        yield
