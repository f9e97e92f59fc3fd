"""Finding 042: A client is sent, with every answer to a session, which token stopped an earlier part."""

from kvgate.findings.finding import Acts, Finding
from kvgate.levels.scheduler.clients import stop_said
from kvreference.rules import Delta

FINDING = Finding(
    id="042-session-says-an-old-stop",
    rank=42,
    statement="KV-SYS-05",
    condition="a session of which an earlier part was stopped by a token",
    on=lambda stage: stage is not None,
    acts=lambda *_run: Acts(
        [Delta(stop_said.__name__, lambda said, stop, earlier: earlier if said(stop, earlier) is None else stop)]
    ),
    holds=lambda ideal, answered, _stop, earlier: ideal is None and answered == earlier,
)
