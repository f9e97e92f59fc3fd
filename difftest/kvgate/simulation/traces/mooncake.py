"""Traces in Mooncake's format: one request a line, its prompt as ids of blocks.

An id stands for a block and for all before it, over the whole file. Two prompts with the same id at the same place
share everything up to there; the last block of a prompt may be partly filled.

Not simulated: when a request came. The lanes send them in order, each when it has nothing under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.simulation.traces.lines import TOKENS_MAX, read_lines, whole_number
from kvgate.simulation.workload import TOKEN_MAX, Turn, Workload, joined, single
from kvreference.operations import Run

BLOCK_TOKENS = 512


@frozen
class _Asked:
    prompt: tuple[Run, ...]
    answer_tokens: int


def mooncake(file: str, requests: int = 0, lanes: int = 1, block_tokens: int = BLOCK_TOKENS) -> Workload:
    """The first ``requests`` requests of a trace in Mooncake's format, 0 being all; ``lanes`` of them at once.

    Raises:
        UsageError: the file cannot be read, or is not such a trace; says which line is wrong and how.
    """
    path = Path(file)
    if block_tokens < 1 or requests < 0:
        raise UsageError("block_tokens must be at least 1, and requests at least 0")
    asked: list[_Asked] = []
    for number, document in read_lines(path):
        if requests and len(asked) == requests:
            break
        try:
            asked.append(_asked(document, block_tokens))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
    if not asked:
        raise UsageError(f"{path}: no request in it")
    # No prompt contains the text of an answer: its ids come after all others.
    own = 1 + max(run.first + run.length for each in asked for run in each.prompt)
    turns = []
    for each in asked:
        turns.append(Turn(each.prompt, Run(own, each.answer_tokens)))
        own += each.answer_tokens
    name = path.name.removesuffix(".xz").removesuffix(".jsonl")
    return Workload(
        f"{name}, {len(turns)} requests",
        single(*turns),
        lanes,
        about=f"the first {len(turns):,} requests of {path.name}, {lanes} at once; when they came is not simulated",
    )


def _asked(document: dict[str, Any], block_tokens: int) -> _Asked:
    tokens = whole_number(document, "input_length", 1, TOKENS_MAX)
    answers = whole_number(document, "output_length", 0, TOKENS_MAX)
    ids = document.get("hash_ids")
    ids_max = TOKEN_MAX // 2 // block_tokens
    if not isinstance(ids, list) or not all(type(each) is int and 0 <= each < ids_max for each in ids):
        raise ValueError(f"'hash_ids' must be a list of whole numbers from 0 to below {ids_max}")
    if len(ids) != -(-tokens // block_tokens):
        raise ValueError(f"{len(ids)} blocks of {block_tokens} tokens do not hold a prompt of {tokens} tokens")
    return _Asked(_runs(ids, tokens, block_tokens), max(1, answers))


def _runs(ids: list[int], tokens: int, block_tokens: int) -> tuple[Run, ...]:
    """The prompt: neighbouring ids are one run."""
    lengths = (min(block_tokens, tokens - place * block_tokens) for place in range(len(ids)))
    return joined(Run(each * block_tokens, length) for each, length in zip(ids, lengths, strict=True))
