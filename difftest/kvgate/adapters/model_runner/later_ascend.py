"""The model runners of vLLM-Ascend from 0.23.0 on."""

from __future__ import annotations

from typing import Any

from kvgate.adapters.groups import spec_compress_ratio
from kvgate.adapters.model_runner.runner import AscendWorker


class LaterAscendWorker(AscendWorker):
    """The model runner of vLLM-Ascend 0.23.0: an operator maps compressed slots, from the block table."""

    def _maps(self, spec: Any) -> bool:
        return spec_compress_ratio(spec) == 1
