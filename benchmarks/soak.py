"""A soak of a server with a shadow: real clients for an hour, and what the shadow checks, its lag and its cost.

`vllm serve` on this machine's CPU serves a tiny hybrid model with KVGATE_SHADOW=check. Clients of the `openai` package
chat in several turns with shared beginnings; some stream, some ask for two answers, some leave in the middle. Each
minute all pause, and it prints what was asked, how long after the last answer the shadow still checked, and the memory
of the engine's process and of the sidecar.

    python -m benchmarks.soak --minutes 60

Exit 1 if a difference, a stall, a loss or an error of a client was seen, or a lag of over 10 s; 3 if no server starts.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from benchmarks.harness import end_with

from kvgate.adapters.cpu_engine.hybrids import HYBRIDS, SPECIAL, VOCABULARY
from kvgate.adapters.cpu_engine.serving import Serving, served
from kvgate.shadow.status import Status, is_fresh, read_all

SETTLE_SECONDS, STILL_SECONDS, LAG_SECONDS_MAX = 60.0, 1.5, 10.0
TURNS, SYSTEM_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 4, 200, 60, 40
CLIENTS, THINK_SECONDS = 6, 1.0
HEAD = "minute  requests   left      steps      calls   lag s  engine MiB  sidecar MiB"


class World:
    """What all clients share."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self._pauses = False
        self._asking = 0
        self._lock = threading.Condition()

    def count(self, what: str) -> None:
        """One more of these."""
        with self._lock:
            self.counts[what] += 1

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around a request; waits while there is a pause."""
        with self._lock:
            self._lock.wait_for(lambda: not self._pauses)
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                self._lock.notify_all()

    @contextmanager
    def pause(self, clients: int) -> Iterator[None]:
        """No client asks."""
        with self._lock:
            self._pauses = True
            if not self._lock.wait_for(lambda: not self._asking, timeout=10.0 * clients):
                self.counts["error: a request that does not end"] += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses = False
                self._lock.notify_all()


class Client(threading.Thread):
    """Chats until it is stopped, and counts what it asked and what went wrong."""

    def __init__(self, number: int, url: str, world: World) -> None:
        super().__init__(daemon=True)
        self.chance = random.Random(number)
        self.server = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60.0, max_retries=0)
        self.model = self.server.models.list().data[0].id
        self.stop, self.world = world.stop, world

    def tokens(self, count: int, seed: int | None = None) -> list[int]:
        """Tokens of a prompt; with a seed, the same for all clients."""
        chance = self.chance if seed is None else random.Random(seed)
        return [chance.randrange(len(SPECIAL), VOCABULARY) for _ in range(count)]

    def run(self) -> None:
        while not self.stop.is_set():
            prompt = self.tokens(SYSTEM_TOKENS, self.chance.randrange(4)) + self.tokens(self.chance.randrange(300))
            for _ in range(TURNS):
                try:
                    with self.world.asking():
                        self.ask(prompt)
                except Exception as error:
                    self.world.count(f"error: {type(error).__name__}")
                if self.stop.wait(self.chance.expovariate(1 / THINK_SECONDS)):
                    return
                prompt = prompt + self.tokens(TURN_TOKENS)

    def ask(self, prompt: Sequence[int]) -> None:
        """One request: streamed, left in the middle, with two answers, or plain."""
        way = self.chance.choices(("plain", "streamed", "left", "two answers"), (4, 4, 2, 1))[0]
        options: dict[str, Any] = {"model": self.model, "prompt": list(prompt), "max_tokens": ANSWER_TOKENS}
        self.world.count("requests")
        self.world.count(way)
        if way in ("plain", "two answers"):
            self.server.completions.create(**options, n=2 if way == "two answers" else 1)
            return
        leaves_after = self.chance.randrange(1, 20) if way == "left" else None
        with self.server.completions.create(**options, stream=True) as stream:
            for number, _ in enumerate(stream):
                if number == leaves_after:
                    return


def memory_mib(pid: int) -> float:
    """How much memory a process has; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def row(minute: float, counts: Counter[str], status: Status, lag: float) -> str:
    """What was seen until now. The name of an engine ends with its process."""
    memory = [memory_mib(pid) for pid in (int(status.engine.split("-")[1]), status.pid)]
    counted = f"{counts['requests']:10}{counts['left']:7}{status.steps:11}{status.calls:11}"
    return f"{minute:6.1f}{counted}{lag:8.1f}{memory[0]:12.0f}{memory[1]:13.0f}"


def lag_seconds(shadows: Path) -> tuple[float, Status]:
    """How long after now the shadow still takes calls, while no client asks; and its status then.

    The status is written twice a second, so less than that is not seen.
    """
    begun = changed = time.monotonic()
    (status,) = read_all(shadows)
    while time.monotonic() - changed < STILL_SECONDS and time.monotonic() - begun < SETTLE_SECONDS:
        time.sleep(0.1)
        (now,) = read_all(shadows)
        if now.calls != status.calls:
            status, changed = now, time.monotonic()
    return changed - begun, status


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, ask for so many minutes, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--model", choices=sorted(HYBRIDS), default="gemma-3")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kvgate-soak-") as folder:
        environment = {"KVGATE_SHADOW": "check", "KVGATE_SHADOW_DIR": folder}
        with served(Serving(options.model, environment), report=print) as server:
            return soak(server.url, Path(folder), options.minutes, options.clients)


def soak(url: str, shadows: Path, minutes: float, clients: int) -> int:
    """Ask, and print a line each minute."""
    world, lags, troubles = World(), list[float](), list[str]()
    working = [Client(number, url, world) for number in range(clients)]
    begun, calls_before, requests_before = time.monotonic(), 0, 0
    for each in working:
        each.start()
    print(HEAD, flush=True)
    try:
        while (passed := time.monotonic() - begun) < 60 * minutes:
            time.sleep(min(60.0, 60 * minutes - passed))
            with world.pause(clients):
                lag, status = lag_seconds(shadows)
                troubles += troubles_of(shadows, status)
                requests = world.counts["requests"]
                if requests > requests_before and status.calls <= calls_before:
                    troubles.append(f"{requests - requests_before} requests, and the shadow has seen no call")
            calls_before, requests_before = status.calls, requests
            lags.append(lag)
            print(row((time.monotonic() - begun) / 60, world.counts, status, lag), flush=True)
    except KeyboardInterrupt:
        print("interrupted: what follows is what was seen until now")
    world.stop.set()
    for each in working:
        each.join(70.0)
        if each.is_alive():
            troubles.append("a client hangs")
    lag, status = lag_seconds(shadows)
    troubles += troubles_of(shadows, status)
    troubles += [f"{times} of {name}" for name, times in world.counts.items() if name.startswith("error")]
    if max([*lags, lag]) > LAG_SECONDS_MAX:
        troubles.append(f"a lag of more than {LAG_SECONDS_MAX} s")
    if not status.judged or not world.counts["requests"]:
        troubles.append("nothing was asked or checked")
    print(f"lag: at most {max([*lags, lag]):.1f} s; calls checked: {status.judged}; left out: {status.unjudged}")
    print(f"asked: {dict(world.counts)}; known findings: {status.declared}")
    print("troubles:", "; ".join(dict.fromkeys(troubles)) or "none")
    return 1 if troubles else 0


def troubles_of(shadows: Path, status: Status) -> list[str]:
    """What the shadow itself reports as wrong, and whether it is still there."""
    counted = {name: getattr(status, name) for name in ("differences", "lost", "unwritten", "blocks_lost")}
    found = [f"{name} {count}" for name, count in counted.items() if count]
    found += [f"stalled: {each}" for each in status.stalled]
    found += [f"raised: {status.raised}"] if status.raised else []
    if status.state != "watching" or not is_fresh(shadows, status):
        found.append(f"the shadow stopped watching: {status.state}, {status.reason or 'its status is old'}")
    return found


if __name__ == "__main__":
    end_with("soak", main)
