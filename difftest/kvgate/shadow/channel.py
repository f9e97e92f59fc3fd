"""The channel from an engine to its sidecar: it never blocks, and holds a bounded number of bytes.

What the socket does not take at once waits here, and is sent later: with what comes next, or by a thread that is awake
only while something waits. What is more than may wait is left out. So a process that is too slow, or is stopped, costs
the engine memory up to that bound, and no time.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque

LENGTH = struct.Struct("<I")
SEND_BUFFER_BYTES = 4 * 2**20
_AGAIN_SECONDS = 0.05
_AT_ONCE_BYTES = 2**20
"""How much of what waits is sent in one call: an engine that calls does not wait for all of it."""
_ASKED_BYTES = 64
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A closed channel is an error, not a signal, which would end an engine that does not ignore it."""


class ClosedError(Exception):
    """The other end is closed."""


class Channel:
    """The engine's end."""

    def __init__(self, end: socket.socket, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._socket = end
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, min(SEND_BUFFER_BYTES, bytes_max))
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0
        # The thread that holds it may be made to drop a scheduler, and with it its channel.
        self._lock = threading.RLock()
        self._is_closed = False
        self._wake = threading.Event()
        threading.Thread(target=self._send_later, name="kvgate-shadow", daemon=True).start()

    @property
    def bytes_waiting(self) -> int:
        """How much waits to be sent."""
        return self._bytes

    def send(self, payload: bytes) -> bool:
        """Send ``payload``, now or later; whether that is possible.

        Raises:
            ClosedError: the other end is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError
            if self._bytes + len(payload) > self.bytes_max:
                self._flush()
                if self._bytes + len(payload) > self.bytes_max:
                    return False
            self._waiting.append(memoryview(LENGTH.pack(len(payload)) + payload))
            self._bytes += LENGTH.size + len(payload)
            self._flush()
        if self._bytes:
            self._wake.set()
        return True

    def was_asked(self) -> bool:
        """Whether the other end has sent anything since the last time.

        Raises:
            ClosedError: the other end is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError
            try:
                return bool(self._socket.recv(_ASKED_BYTES))
            except BlockingIOError:
                return False
            except OSError as error:
                self._end()
                raise ClosedError(str(error)) from error

    def flush(self) -> bool:
        """Send what waits, as far as possible; whether nothing waits any more.

        Raises:
            ClosedError: the other end is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._flush()
        return not self._bytes

    def _flush(self) -> None:
        room = _AT_ONCE_BYTES
        try:
            while self._waiting and room:
                view = self._waiting[0]
                sent = self._socket.send(view[:room], _NO_SIGNAL)
                room -= sent
                self._bytes -= sent
                if sent == len(view):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = view[sent:]
        except BlockingIOError:
            return
        except OSError as error:
            self._end()
            raise ClosedError(str(error)) from error

    def _send_later(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._is_closed and self._bytes:
                    before = self._bytes
                    if not self.flush() and self._bytes >= before:
                        time.sleep(_AGAIN_SECONDS)
            except ClosedError:
                return

    def _end(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        self._bytes = 0
        self._socket.close()
        self._wake.set()

    def close(self, wait_seconds: float = 0.0) -> None:
        """Nothing is sent any more; what waits is, within so many seconds."""
        end = time.monotonic() + wait_seconds
        try:
            while (before := self._bytes) and not self.flush() and time.monotonic() < end:
                if self._bytes >= before:
                    time.sleep(0.01)
        except ClosedError:
            return
        with self._lock:
            self._end()
