"""The sanitizer: misuse of KV-cache blocks, found in any test, script or server that uses vLLM's block manager.

It needs no reference and no model. It watches the calls of the block pool, the free queue and the block manager, and
reports use after free, double free, foreign hits and leaks, each with the places where the block was allocated, freed
and misused. ``difftest/SANITIZER.md`` says how to use it and what it cannot see.

This module is the plug-in of pytest: ``pytest -p kvgate.sanitizer``. It is an entry point as well, which does nothing
unless it is asked for by ``-p``, by ``--kvgate-sanitize`` or by ``KVGATE_SANITIZE=1``. Scripts and servers go through
``kvgate.sanitizer.plugin``, where there need not be a pytest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "KVGATE_SANITIZE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--kvgate-sanitize",
        action="store_true",
        help="fail tests in which vLLM's block manager misuses a block: use after free, double free, foreign hit, leak",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Switch the sanitizer on if it is asked for."""
    asked = __name__ in (config.getoption("plugins", None) or ()) or config.getoption("--kvgate-sanitize")
    if asked or os.environ.get(VARIABLE, "") not in ("", "0"):
        from kvgate.sanitizer.sanitized_tests import SanitizedTests

        config.pluginmanager.register(SanitizedTests(config), "kvgate.sanitizer.tests")
