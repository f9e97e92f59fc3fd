"""Finding 042: A client is sent, with every answer to a session, which token stopped an earlier part."""

from kvgate.findings.finding import Acts, Finding
from kvreference.rules import Delta

RULE = "reported_stop"
"""A rule of the scheduler's level, which knows what clients are sent."""


def _or(said: object, earlier: object) -> object:
    return earlier if said is None else said


FINDING = Finding(
    id="042-session-says-an-old-stop",
    rank=42,
    statement="KV-SYS-05",
    condition="a session of which an earlier part was stopped by a token",
    on=lambda _stage: True,
    acts=lambda *_run: Acts([Delta(RULE, lambda said, stop, earlier: _or(said(stop, earlier), earlier))]),
    holds=lambda ideal, answered, _stop, earlier: ideal is None and answered == earlier,
)
