"""Whoever ends `python -m kvgate.adapters.cpu_engine` ends the server that it started."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

STARTED = """
import sys
from kvgate.adapters.cpu_engine import __main__ as command, serving

HEALTHY = '''
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
'''
serving._run = lambda _arguments: None
serving.command = lambda _folder, port, *_rest: [sys.executable, "-c", HEALTHY, str(port)]
command.serve("gemma-3", int(sys.argv[1]), None, None)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_server_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Goal: a signal to end is not survived by what was started. Method: a server that is none; is its port free?"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [sys.executable, "-c", STARTED, str(port)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert f"is served at http://127.0.0.1:{port}" in process.stdout.readline()
        with socket.create_connection(("127.0.0.1", port), 10):
            pass
        process.send_signal(number)
        assert 128 + number == process.wait(60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
