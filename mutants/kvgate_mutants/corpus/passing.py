"""Results as lines of text, from one process of this kvgate to another, and read strictly."""

from __future__ import annotations

import json

from attrs import asdict

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvgate_mutants.corpus.probe import Result, State

_KEY = "corpus_result"
LINE_BYTES_MAX = 2**16


def written(result: Result) -> str:
    """A result as one line."""
    return json.dumps({_KEY: asdict(result)})


def read(line: str) -> Result | None:
    """The result in a line; None for any other line, because other code may print too.

    Raises:
        UsageError: it is one, and not as it should be.
    """
    if not line.startswith(f'{{"{_KEY}"'):
        return None
    if len(line) > LINE_BYTES_MAX:
        raise UsageError(f"a result of {len(line)} characters: at most {LINE_BYTES_MAX} are read")
    try:
        result: Result = _CONVERTER.structure(json.loads(line)[_KEY], Result)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"a result that cannot be read: {explain(error)}") from error
    return result


_CONVERTER = strict_converter()
_CONVERTER.register_structure_hook(State, lambda value, _kind: State(value))
