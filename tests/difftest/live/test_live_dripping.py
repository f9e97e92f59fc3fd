"""A server that answers a byte at a time.

Goal: no answer is read for longer than its time. Method: a transport that drips, and a time that is short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kvgate.kernel.errors import SystemUnavailableError
from kvgate.live import server as of_server
from kvgate.live.server import Asked, Server

httpx = pytest.importorskip("httpx")

PIECES = 100


def drips() -> Iterator[bytes]:
    """Blanks, which never become an answer, for ten seconds."""
    for _ in range(PIECES):
        time.sleep(0.1)
        yield b" "


@pytest.mark.parametrize(
    "ask",
    [
        lambda server: server.complete(Asked("a", "b", 1)),
        lambda server: server.metrics(),
        lambda server: server.abort(Asked("a", "b", 1)),
    ],
    ids=["complete", "metrics", "abort"],
)
def test_an_answer_that_drips_has_an_end(ask: Callable[[Server], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the limit is one of the whole answer. Method: as above, by each way to ask."""
    pytest.importorskip("prometheus_client")
    monkeypatch.setattr(of_server, "ANSWER_SECONDS_MAX", 0.5)
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=drips()))
    client = httpx.Client(base_url="http://drips", transport=transport)
    with client as http, pytest.raises(SystemUnavailableError) as raised:
        ask(Server("http://drips", http, "m", 100))
    assert "no whole answer within 0.5 seconds" in str(raised.value)
