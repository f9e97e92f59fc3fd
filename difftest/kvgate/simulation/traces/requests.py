"""Logs of requests to OpenAI's API, or to vLLM's: a JSON object a line, with the prompt as it was sent.

A line is the body of a request, or has it under ``body``, as OpenAI's batches do. The prompt is ``messages`` or
``prompt``: text, or token ids. Without a tokenizer four characters of text are taken for a token. What two prompts
share is counted in grains of 16 tokens, which is nearly right, and how long they are is not. Tools, calls of tools and
images are text here, as they were sent. Nothing is shared by requests to two models, or with two salts. How much was
answered is ``usage.completion_tokens`` where it was logged with the request, or else ``max_tokens``, which is at least
as much. What was answered is not known, so a conversation finds its own answers again only after they were part of a
prompt.

Not simulated: when a request came. The lanes send them in order, each when it has nothing under way.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from kvgate.kernel.errors import UsageError
from kvgate.simulation.generators import Spellings
from kvgate.simulation.traces.lines import TOKENS_MAX, read_lines, whole_number
from kvgate.simulation.workload import Turn, Workload, joined, single
from kvreference.operations import Run

CHARACTERS = 4
"""How many characters of text are taken for a token."""
GRAIN_TOKENS = 16
_ANSWERS = ("max_completion_tokens", "max_tokens")


def requests_log(file: str, requests: int = 0, lanes: int = 16, answer_tokens: int = 0) -> Workload:
    """The first ``requests`` requests of a log, 0 being all; ``lanes`` of them at once.

    ``answer_tokens`` is how much is answered where the log does not say; 0: it must.

    Raises:
        UsageError: the file cannot be read, or is not such a log; says which line is wrong and how.
    """
    path = Path(file)
    if min(requests, answer_tokens) < 0:
        raise UsageError("requests and answer_tokens must be at least 0")
    text, known = Spellings(), dict[tuple[Hashable, Hashable], Run]()
    turns: list[Turn] = []
    for number, document in read_lines(path):
        if requests and len(turns) == requests:
            break
        try:
            body = document.get("body", document)
            if not isinstance(body, dict):
                raise ValueError("'body' must be an object")
            answers = _answers(document, body, answer_tokens)
            turns.append(Turn(joined(_runs(body, known, text)), text.fresh(answers)))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
    if not turns:
        raise UsageError(f"{path}: no request in it")
    return Workload(
        f"{path.name}, {len(turns)} requests",
        single(*turns),
        lanes,
        about=f"{len(turns):,} requests of {path.name}, {lanes} at once; {CHARACTERS} characters of text are taken for "
        "a token, and when they came is not simulated",
    )


def _answers(document: dict[str, Any], body: dict[str, Any], otherwise: int) -> int:
    for usage in (document.get("usage"), body.get("usage")):
        if isinstance(usage, dict):
            return max(1, whole_number(usage, "completion_tokens", 0, TOKENS_MAX))
    for key in _ANSWERS:
        if body.get(key) is not None:
            return whole_number(body, key, 1, TOKENS_MAX)
    if otherwise:
        return otherwise
    raise ValueError(
        f"how much was answered is not known: no 'usage', and none of {', '.join(_ANSWERS)}; give answer_tokens=N"
    )


def _runs(body: dict[str, Any], known: dict[tuple[Hashable, Hashable], Run], text: Spellings) -> Iterator[Run]:
    """The prompt's tokens: after the same beginning, the same grain is the same tokens."""
    last: Hashable = str(body.get("model")), str(body.get("cache_salt"))
    for piece, tokens in _grains(body):
        key = last, piece
        if key not in known:
            known[key] = text.fresh(tokens)
        yield known[key]
        last = known[key].first


def _grains(body: dict[str, Any]) -> Iterator[tuple[Hashable, int]]:
    """What the prompt is, grain by grain, each with its tokens."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        for first in range(0, len(prompt), GRAIN_TOKENS):
            ids = tuple(prompt[first : first + GRAIN_TOKENS])
            yield ids, len(ids)
        return
    if not isinstance(prompt, str):
        messages = body.get("messages", [])
        if not isinstance(messages, list):
            raise ValueError("'messages' must be a list of objects")
        tools = body.get("tools")
        prompt = "".join((json.dumps(tools, sort_keys=True) if tools and messages else "", *map(_said, messages)))
    if not prompt:
        raise ValueError("needs 'messages', or a 'prompt' of text or of token ids")
    size = CHARACTERS * GRAIN_TOKENS
    for first in range(0, len(prompt), size):
        piece = prompt[first : first + size]
        yield piece, -(-len(piece) // CHARACTERS)


def _said(message: object) -> str:
    if not isinstance(message, dict):
        raise ValueError("'messages' must be a list of objects")
    content, calls = message.get("content"), message.get("tool_calls")
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True) if content else ""
    return f"<{message.get('role')}>{text}{json.dumps(calls, sort_keys=True) if calls else ''}"
