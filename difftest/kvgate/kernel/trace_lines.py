"""The lines of trace files, and how large anything in them may be.

JSON lines. Files are untrusted: every limit is checked before memory is spent, and every error names the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import json_object, read_bytes
from kvreference.settings import Settings

FILE_BYTES_MAX = 64 * 2**20
LINE_BYTES_MAX = 2**20
OPERATIONS_MAX = 200_000
TOKENS_MAX = 20_000_000
"""The most prompt tokens in one trace, and the longest request."""
GRAINS_MAX = 2_000_000
"""The most pieces of content in one trace: each is remembered for itself."""
BLOCKS_MAX = 2_000_000
GROUPS_MAX = 256
DRAFTS_MAX = 10_000
"""The most drafts after a sampled token, and states for them."""
WORK_MAX = 2_000_000_000
"""Blocks by operations: after each operation every block is compared, a million of them in about half a second."""


def read_lines(path: Path) -> list[bytes]:
    """The lines of a trace file of any kind, the header first; at least that, and no more than are read.

    Raises:
        UsageError: no such file, too large, or not whole.
    """
    raw = read_bytes(path, FILE_BYTES_MAX)
    if raw.count(b"\n") > OPERATIONS_MAX + 1:
        raise UsageError(f"{path}: more than {OPERATIONS_MAX} operations")
    lines = raw.split(b"\n")
    if lines.pop() != b"":
        raise UsageError(f"{path}: line {len(lines) + 1}: cut off; the last line of a trace ends with a newline")
    if not lines:
        raise UsageError(f"{path}: empty; a trace starts with a header")
    return lines


def read_document(path: Path, number: int, text: bytes) -> dict[str, Any]:
    """One line of a trace file, as JSON.

    Raises:
        UsageError: too long, or not a JSON object.
    """
    if len(text) > LINE_BYTES_MAX:
        raise UsageError(f"{path}: line {number}: {len(text)} bytes, at most {LINE_BYTES_MAX} are read")
    try:
        return json_object(text)
    except ValueError as error:
        raise UsageError(f"{path}: line {number}: {error}") from error


def check_size(where: str, settings: Settings) -> None:
    """Reject settings that are too large to build a system for.

    Raises:
        UsageError: they are; begins with ``where`` they stand.
    """
    groups = settings.geometry.groups
    if len(groups) > GROUPS_MAX:
        raise UsageError(f"{where}: {len(groups)} groups, at most {GROUPS_MAX} are followed")
    if max(settings.drafts_max, *(group.draft_states for group in groups), 0) > DRAFTS_MAX:
        raise UsageError(f"{where}: at most {DRAFTS_MAX} drafts, and states for them, are followed")
    largest = max((group.block_size_tokens for group in groups), default=0)
    if settings.blocks > BLOCKS_MAX or max(settings.tokens_max, largest) > TOKENS_MAX:
        raise UsageError(
            f"{where}: at most {BLOCKS_MAX} blocks, and requests and blocks of {TOKENS_MAX} tokens, are followed"
        )


def check_prompts(path: Path, number: int, tokens: int, settings: Settings) -> None:
    """Reject prompts that are too large to keep; ``tokens`` are in all of them up to this line.

    Raises:
        UsageError: there are more tokens, or pieces of content, than are kept.
    """
    if tokens > TOKENS_MAX:
        raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} prompt tokens in all")
    grain = settings.geometry.grain_tokens
    if tokens // grain > GRAINS_MAX:
        raise UsageError(
            f"{path}: line {number}: {tokens} prompt tokens in pieces of {grain}: at most {GRAINS_MAX} pieces are kept"
        )
