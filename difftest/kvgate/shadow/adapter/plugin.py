"""The entry point that vLLM calls in each process. With ``KVGATE_SHADOW`` unset it imports and changes nothing."""

from __future__ import annotations

import os


def register() -> None:
    """Let every scheduler that is built from now on have a shadow, if the environment asks for one. Never raises."""
    if not os.environ.get("KVGATE_SHADOW"):
        return
    try:
        from kvgate.shadow.adapter.attachment import put_in_place

        put_in_place()
    except Exception as error:
        from kvgate.shadow.adapter.log import warn

        warn(f"is off: {type(error).__name__}: {error}")
