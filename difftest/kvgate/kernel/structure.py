"""Documents from outside become values here, strictly: nothing is converted, nothing unknown is let through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cattrs
from cattrs.errors import BaseValidationError
from cattrs.v import format_exception

from kvgate.kernel.errors import UsageError
from kvgate.kernel.text import printable

CHARACTERS_MAX = 2000
"""How long the explanation of what is wrong with a document may be."""
DOCUMENT_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError, BaseValidationError)
"""The exceptions that a malformed document may raise while it becomes a value."""


def read_bytes(path: Path, bytes_max: int) -> bytes:
    """What a file holds; no more than the limit is read, even if the file reports another size.

    Raises:
        UsageError: it cannot be read, or is longer than ``bytes_max``.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > bytes_max:
        raise UsageError(f"{path}: larger than {bytes_max} bytes")
    return raw


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in one line.

    Raises:
        ValueError: it is not a JSON object; says why.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _exact(value: object, kind: type) -> object:
    """No silent conversion: "16", 16.0 and true are not 16."""
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def _number(value: Any, _kind: type) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"expected a number, got {value!r:.80}")
    return float(value)


def strict_converter() -> cattrs.Converter:
    """A converter that rejects unknown keys, and values of another type."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exact)
    converter.register_structure_hook(float, _number)
    return converter


def _in_words(error: BaseException, kind: type | None) -> str:
    return str(error) if type(error) is ValueError else format_exception(error, kind)


def explain(error: Exception) -> str:
    """What was wrong with a document, on one line."""
    if isinstance(error, BaseValidationError):
        return printable("; ".join(cattrs.transform_error(error, format_exception=_in_words)), CHARACTERS_MAX)
    return printable(str(error), CHARACTERS_MAX) or type(error).__name__
