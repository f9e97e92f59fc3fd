"""A plug-in of pytest that breaks vLLM-Ascend's block table: a row begins with the block after its first."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def pytest_collection_finish() -> None:
    """Break it once everything is imported."""
    table: Any = import_module("vllm_ascend.worker.block_table").BlockTable
    add_row = table.add_row
    table.add_row = lambda self, blocks, row: add_row(self, [block + 1 for block in blocks], row)
