"""Logs of requests to OpenAI's API, or to vLLM's: a JSON object a line, with the prompt as it was sent.

A line is the body of a request, or has it under ``body``, as OpenAI's batches do. The prompt is ``messages`` or
``prompt``: text, or token ids. Without a tokenizer text is cut into pieces of four characters, a token each: what two
prompts share is then right within one token of English text, and how long they are is not. How much was answered is
``usage.completion_tokens`` where it was logged with the request, or else ``max_tokens``. What was answered is not
known, so a conversation finds its own answers again only after they were part of a prompt.

Not simulated: when a request came. The lanes send them in order, each when it has nothing under way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from kvgate.kernel.errors import UsageError
from kvgate.simulation.generators import Spellings
from kvgate.simulation.traces.lines import TOKENS_MAX, read_lines, whole_number
from kvgate.simulation.workload import Turn, Workload, joined, single
from kvreference.operations import Run

CHARACTERS = 4
"""How many characters of text are taken for a token."""
_ANSWERS = ("max_completion_tokens", "max_tokens")


def requests_log(file: str, requests: int = 0, lanes: int = 16) -> Workload:
    """The first ``requests`` requests of a log, 0 being all; ``lanes`` of them at once.

    Raises:
        UsageError: the file cannot be read, or is no such log; says which line is wrong and how.
    """
    path = Path(file)
    text, known = Spellings(), dict[tuple[int, Hashable], int]()
    turns: list[Turn] = []
    for number, document in read_lines(path):
        if requests and len(turns) == requests:
            break
        try:
            body = document.get("body", document)
            if not isinstance(body, dict):
                raise ValueError("'body' must be an object")
            answers = _answers(document, body)
            turns.append(Turn(_runs(_pieces(body), known, text), text.fresh(answers)))
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


def _answers(document: dict[str, Any], body: dict[str, Any]) -> int:
    usage = document.get("usage", body.get("usage"))
    if isinstance(usage, dict):
        return max(1, whole_number(usage, "completion_tokens", 0, TOKENS_MAX))
    for key in _ANSWERS:
        if body.get(key) is not None:
            return whole_number(body, key, 1, TOKENS_MAX)
    raise ValueError(f"how much was answered is not known: no 'usage', and none of {', '.join(_ANSWERS)}")


def _pieces(body: dict[str, Any]) -> Sequence[Hashable]:
    """The prompt, a piece for each token."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return prompt[:TOKENS_MAX]
    if not isinstance(prompt, str):
        messages = body.get("messages", [])
        if not isinstance(messages, list):
            raise ValueError("'messages' must be a list of objects")
        prompt = "".join(map(_said, messages))
    if not prompt:
        raise ValueError("needs 'messages', or a 'prompt' of text or of token ids")
    return [prompt[first : first + CHARACTERS] for first in range(0, len(prompt), CHARACTERS)]


def _said(message: object) -> str:
    if not isinstance(message, dict):
        raise ValueError("'messages' must be a list of objects")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return f"<{message.get('role')}>{content}"


def _runs(pieces: Sequence[Hashable], known: dict[tuple[int, Hashable], int], text: Spellings) -> tuple[Run, ...]:
    """The tokens: after the same beginning, the same piece is the same token."""
    runs: list[Run] = []
    token = -1
    for piece in pieces:
        key = token, piece
        if key not in known:
            known[key] = text.fresh(1).first
        token = known[key]
        runs.append(Run(token, 1))
    return joined(runs)
