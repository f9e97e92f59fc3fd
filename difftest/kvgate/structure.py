"""Documents from outside become values here, strictly: nothing is converted, nothing unknown is let through."""

from __future__ import annotations

import cattrs
from cattrs.errors import BaseValidationError
from cattrs.v import format_exception

DOCUMENT_ERRORS = (ValueError, TypeError, KeyError, RecursionError, BaseValidationError)
"""Whatever a document that is not what it should be may raise while it becomes a value."""


def _exact(value: object, kind: type) -> object:
    """No silent conversion: "16", 16.0 and true are not 16."""
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def strict_converter() -> cattrs.Converter:
    """A converter that refuses unknown keys, and values of another type."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exact)
    return converter


def _in_words(error: BaseException, kind: type | None) -> str:
    return str(error) if type(error) is ValueError else format_exception(error, kind)


def explain(error: Exception) -> str:
    """What was wrong with a document, on one line."""
    if isinstance(error, BaseValidationError):
        return "; ".join(cattrs.transform_error(error, format_exception=_in_words))
    return str(error) or type(error).__name__
