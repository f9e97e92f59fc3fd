"""One import of vLLM for all engines of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvgate.adapters.cpu_engine.engines import Engines, engines


@pytest.fixture(scope="package")
def started() -> Iterator[Engines]:
    """The engines' process."""
    platforms = pytest.importorskip("vllm.platforms")
    if not platforms.current_platform.is_cpu():
        pytest.skip("this vLLM is not built for CPUs")
    with engines() as process:
        yield process
