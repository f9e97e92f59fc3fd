"""Every parser of untrusted input, with valid inputs for it: what the fuzz tests run."""

from __future__ import annotations

from .answers import TYPED_OR_ANSWERED
from .foreign import FOREIGN
from .parser import Form, Parser
from .recordings import RECORDINGS
from .written import WRITTEN

PARSERS = (*WRITTEN, *RECORDINGS, *FOREIGN, *TYPED_OR_ANSWERED)

__all__ = ["PARSERS", "Form", "Parser"]
