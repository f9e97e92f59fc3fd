"""Which package caused an exception.

Goal: a fault of the gate is never reported as a divergence, and a fault of the system never as the gate's. Method:
exceptions that are raised directly, and by a library that was called with something wrong.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters import work_meter
from kvgate.kernel.blame import is_ours
from kvgate.kernel.models import load
from kvreference.settings import Settings

SETTINGS = Settings(load("mamba-align").geometry, blocks=9)


def in_module(name: str, body: str) -> Any:
    """A function ``f`` of a module of that name, which calls ``called``."""
    module = ModuleType(name)
    exec(f"def f(called=None):\n    {body}", module.__dict__)
    return module.__dict__["f"]


@pytest.mark.parametrize(
    ("module", "body", "ours"),
    [
        ("vllm.v1.core", "raise KeyError(1)", False),
        ("vllm.v1.core", "import json; json.loads('{')", False),
        ("vllm.v1.core", "import attrs; attrs.evolve(called, nothing=1)", False),
        ("kvreference.manager", "raise KeyError(1)", True),
        ("kvreference.manager", "import json; json.loads('{')", True),
        ("kvgate.kernel", "import attrs; attrs.evolve(called, nothing=1)", True),
        ("my_patch", "raise KeyError(1)", False),
        ("kvgate.levels", "import numpy; numpy.broadcast_to([1, 2], (3,))", True),
        ("vllm.v1.core", "import numpy; numpy.broadcast_to([1, 2], (3,))", False),
        ("kvgate.levels", "import torch; torch.nn.Linear(2, -1)", True),
        ("vllm.v1.core", "import torch; torch.nn.Linear(2, -1)", False),
    ],
)
def test_a_library_raises_for_its_caller(module: str, body: str, ours: bool) -> None:
    """The caller is the last function that is in no library."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 (which it is, the table says)
        in_module(module, body)(SETTINGS)
    assert ours is is_ours(raised.value)


@pytest.mark.parametrize(
    ("module", "body", "ours"),
    [
        ("vllm.v1.core", "called[9]", False),
        ("vllm.v1.core", "called.index('no entry')", False),
        ("kvgate.levels", "called[9]", True),
        ("vllm.v1.core", "called._tally = None; called[0]", True),
    ],
)
def test_a_counted_list_raises_for_its_caller(module: str, body: str, ours: bool) -> None:
    """As a list would. A fault in counting is the gate's."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 (which it is, the table says)
        in_module(module, body)(work_meter._Table(work_meter.Tally(1), 0, ["entry"]))
    assert ours is is_ours(raised.value)


def test_what_the_system_calls_back_counts_as_the_gates() -> None:
    """vLLM calls the reference's settings, which reject what they are given."""
    with pytest.raises(ValueError, match="5 drafts") as raised:
        in_module("vllm.v1.core", "called()")(lambda: evolve(SETTINGS, drafts_max=5))
    # The lambda is in a test, and the validator in kvreference.
    assert is_ours(raised.value)
