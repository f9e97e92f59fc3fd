"""Clean processes with vLLM in them, without the seconds that importing vLLM takes.

A server imports vLLM and the modules that most commands need: once for all of pytest's workers, and on the first
request. It forks for each request. A child runs ``-c PROGRAM``, ``-m MODULE`` or a file as a new interpreter would:
with its own arguments, environment, working directory, output, signals and exit code. What an interpreter reads when it
starts (``PYTHONPATH``, ``PYTHONHASHSEED``) cannot differ between children: a request that asks for another value is
rejected, and needs a real process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PRELOADED = (
    "hypothesis.stateful",
    "kvgate.adapters.registry",
    "kvgate.adapters.stock",
    "kvgate.levels.registry",
    "kvgate.levels.scheduler.adapter.stage",
    "vllm.plugins",
    "vllm.triton_utils",
    "vllm.v1.core.kv_cache_manager",
)
"""The server's imports. None of them may change vLLM: a child must find the released code."""
AT_START = {"PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONOPTIMIZE"}
"""The variables that an interpreter reads when it starts."""
OWN = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
"""The server's own variables: all children hash alike, and numpy starts no thread, which would not survive a fork."""
ADDRESS = "KVGATE_TESTS_FORK_SERVER"
"""The variable that gives pytest's workers the path of the server's socket."""
READY_SECONDS_MAX = 300.0
"""How long the server may take to import vLLM on a loaded machine."""


class Child:
    """A process that the server has forked, in a session of its own."""

    def __init__(
        self, connection: socket.socket, stdout: int, stderr: int, arguments: tuple[str, ...], log: Path
    ) -> None:
        self.arguments = arguments
        self.stdout = os.fdopen(stdout, "r", encoding="utf-8")
        self.stderr = os.fdopen(stderr, "r", encoding="utf-8")
        self._connection = connection
        self._answers = connection.makefile("r", encoding="utf-8")
        connection.settimeout(READY_SECONDS_MAX)
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"the fork server ended: {log.read_text(encoding='utf-8')[-2000:]}")
        self.pid = int(answer)
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the child and all that it started and that is still in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """How the child ended, as ``subprocess`` reports it: a negative number is a signal.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._answers.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.arguments, timeout) from None
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end, and return all that is still to be read.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and was killed.
        """
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.kill()

        timer = threading.Timer(timeout, expire)
        timer.start()
        reader.start()
        try:
            output = self.stdout.read()
            reader.join()
            self.wait(timeout)
        finally:
            timer.cancel()
        if expired.is_set():
            raise subprocess.TimeoutExpired(self.arguments, timeout, output, "".join(errors))
        return output, "".join(errors)

    def close(self) -> None:
        """Kill what is left, and close all streams."""
        if self.returncode is None:
            self.kill()
        for each in (self.stdout, self.stderr, self._answers, self._connection):
            each.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class ForkServer:
    """A client of the server whose socket is at ``address``."""

    def __init__(self, address: str) -> None:
        self._address = address

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Child:
        """Start ``python *arguments``, where the first of them is ``-c``, ``-m`` or a file.

        Raises:
            ValueError: the environment asks for what only another interpreter can have.
        """
        environment = dict(os.environ if env is None else env)
        for name in AT_START:
            if environment.get(name) not in (os.environ.get(name), OWN.get(name)):
                raise ValueError(f"{name}={environment.get(name)} needs an interpreter of its own: use subprocess")
        asked = {"arguments": arguments, "environment": environment, "directory": str(cwd or Path.cwd())}
        message = json.dumps(asked).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self._address)
        (out, child_out), (err, child_err) = os.pipe(), os.pipe()
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [child_out, child_err])
        connection.sendall(message)
        os.close(child_out)
        os.close(child_err)
        return Child(connection, out, err, arguments, Path(f"{self._address}.log"))

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120.0,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """The result of ``subprocess.run`` for ``python *arguments`` if it captures the output as text.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and was killed.
            subprocess.CalledProcessError: it failed although ``check`` asks for success.
        """
        with self.start(*arguments, env=env, cwd=cwd) as child:
            output, errors = child.communicate(timeout)
            ended = subprocess.CompletedProcess(list(arguments), child.wait(timeout), output, errors)
        if check:
            ended.check_returncode()
        return ended


@contextmanager
def listening(folder: Path) -> Iterator[str]:
    """A server that imports nothing before the first request, and ends with this process; yields its address."""
    address = str(folder / "fork-server")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(64)
        with Path(f"{address}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **OWN},
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
    try:
        yield address
    finally:
        # The end of its input ends the server.
        process.communicate()


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for each request until standard input ends; returns what was asked, in the child only."""
    children: dict[int, socket.socket] = {}
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    for source in (listener, woken, sys.stdin):
        selector.register(source, selectors.EVENT_READ)
    is_ready = False
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if woken in ready:
            woken.recv(4096)
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with children.pop(pid) as connection, suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        if sys.stdin in ready:
            for pid in children:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            raise SystemExit
        if listener in ready:
            if not is_ready:
                for name in PRELOADED:
                    import_module(name)
                # Objects that the collector never visits are never copied for a child.
                gc.freeze()
                is_ready = True
            connection, _ = listener.accept()
            asked, streams = receive(connection)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                selector.close()
                for each in (listener, woken, waker, connection, *children.values()):
                    each.close()
                return {**asked, "streams": streams}
            for stream in streams:
                os.close(stream)
            children[pid] = connection
            with suppress(OSError):
                connection.sendall(f"{pid}\n".encode())


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the descriptors of its output and errors."""
    size, streams, _flags, _address = socket.recv_fds(connection, 4, 2)
    with connection.makefile("rb") as stream:
        asked: dict[str, Any] = json.loads(stream.read(int.from_bytes(size, "big")))
    return asked, list(streams)


def become(asked: dict[str, Any]) -> list[str]:
    """Make this child what was asked for, up to running it; returns its arguments."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, stream in enumerate((nothing, *asked["streams"])):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    return list(asked["arguments"])


def run_as_main(program: str, *arguments: str) -> int:
    """Run a program, and return the exit code that an interpreter would end with."""
    try:
        if program == "-m":
            sys.argv[:], sys.path[0] = ["-m", *arguments[1:]], str(Path.cwd())
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        elif program == "-c":
            sys.argv[:], sys.path[0] = ["-c", *arguments[1:]], ""
            sys.modules["__main__"] = main_module = ModuleType("__main__")
            exec(compile(arguments[0], "<string>", "exec"), vars(main_module))
        else:
            sys.argv[:], sys.path[0] = [program, *arguments], str(Path(program).parent)
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def main() -> None:
    """Serve, and in each child run what was asked for and end."""
    code = run_as_main(*become(serve(socket.socket(fileno=int(sys.argv[1])))))
    # As an interpreter does at its end, except that nothing is torn down: that alone takes a second with vLLM.
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter calls it
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
