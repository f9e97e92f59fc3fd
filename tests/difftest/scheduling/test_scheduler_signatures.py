"""What the gate relies on of each release's scheduler.

Goal: a scheduler that takes or tells something else than it did is noticed. Method: the vLLM that is installed against
its pins; and the list of what is pinned against the list of what can be run.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.signatures import VLLM_VERSION, drift
from kvgate.levels.scheduler.adapter.signatures import SYMBOLS, pinned, seen, version_of
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.adapter.traits import SCHEDULERS


def test_every_scheduler_is_pinned() -> None:
    """Symbol by symbol; vLLM-Ascend's managers, and the plug-in, stand under that of vLLM 0.20.2."""
    versions = {version_of(system) for system in SUBJECTS}
    assert {VLLM_VERSION, *SCHEDULERS} == versions
    assert [set(SYMBOLS)] * len(versions) == [set(pinned(version)) for version in versions]


def test_the_scheduler_that_is_installed_is_the_pinned_one() -> None:
    """Nothing differs; and what would differ is told."""
    pytest.importorskip("vllm")
    assert dict(pinned(VLLM_VERSION)) == dict(seen())
    (name, *_) = SYMBOLS
    assert [] == drift({name: pinned(VLLM_VERSION)[name]})
    assert 1 == len(drift({name: ("self", "other")}))
