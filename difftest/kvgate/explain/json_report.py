"""The explanation as a document, versioned."""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict

from kvgate.explain.cause import Cause
from kvgate.explain.explanation import Explanation
from kvreference.statements import STATEMENTS

FORMAT = "kvgate-explanation"
FORMAT_VERSION = 1


def document(explanation: Explanation) -> dict[str, Any]:
    """All of it; lengths are in tokens, counts in blocks."""
    case, figures = explanation.case, asdict(explanation.figures)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "model": case.layout.name,
        "source": case.layout.source,
        "notes": list(case.layout.notes),
        "platform": case.serving.platform.value,
        "release": case.serving.version,
        "prefix_caching": case.layout.caches,
        "retention_interval_tokens": case.settings.retention_interval_tokens,
        "block_bytes": case.layout.block_bytes,
        "prompts": None if case.prompts is None else asdict(case.prompts),
        "figures": figures,
        "causes": [_cause(cause) for cause in explanation.causes],
        "recommended": list(explanation.recommended),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "effect": cause.effect.name.lower(),
        "condition": cause.condition,
        "says": cause.says,
        "statement": cause.statement,
        "sentence": STATEMENTS[cause.statement],
        "upstream": list(cause.upstream),
        "remedy": cause.remedy,
    }


def json_report(explanation: Explanation) -> str:
    """The document as text."""
    return json.dumps(document(explanation), indent=1)
