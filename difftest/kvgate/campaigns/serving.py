"""What a worker does, on this machine or another: it reads shards as text, and answers as text.

Nothing but text goes to a worker and comes back, so that neither side trusts what the other has in its memory.
"""

from __future__ import annotations

import json
import os
from typing import Any

from attrs import asdict, field, frozen

from kvgate.campaigns.plan import plan_in
from kvgate.campaigns.results import render
from kvgate.campaigns.shard import Known, Shards
from kvgate.gate.fault import Fault, fault_of
from kvgate.kernel.errors import SystemUnavailableError, UsageError

UNUSABLE = {"usage": UsageError, "unavailable": SystemUnavailableError}
"""What a worker says that ends the whole run, and as what."""


@frozen
class Task:
    """What a worker is asked for."""

    shard: int
    known: Known = field(factory=Known)

    def render(self) -> str:
        """The task as a document."""
        kinds = sorted(map(list, self.known.kinds))
        return json.dumps({"shard": self.shard, "kinds": kinds, "findings": sorted(self.known.findings)})


def task_in(text: str) -> Task:
    """The task that a document holds."""
    document = json.loads(text)
    kinds = frozenset(tuple(kind) for kind in document["kinds"])
    return Task(document["shard"], Known(kinds, frozenset(document["findings"])))


class Server:
    """Runs shards one after the other; the system is loaded with the first."""

    def __init__(self, plan: str) -> None:
        self._plan = plan_in(json.loads(plan))
        self._shards: Shards | None = None

    def pid(self) -> int:
        """The process it runs in."""
        return os.getpid()

    def run(self, task: str) -> str:
        """Run a shard: its result as a document, or a word that says why there is none."""
        try:
            if self._shards is None:
                self._shards = Shards(self._plan)
            asked = task_in(task)
            return render(self._shards.run(asked.shard, asked.known))
        except UsageError as error:
            return _failure("usage", str(error))
        except SystemUnavailableError as error:
            return _failure("unavailable", str(error))
        except Exception as error:
            loaded = self._shards and self._shards.system
            fault = fault_of(error, loaded.name, loaded.version) if loaded else fault_of(error)
            return _failure("failed", fault.raised, fault)


def _failure(why: str, message: str, fault: Fault | None = None) -> str:
    return json.dumps({"why": why, "message": message[-4000:], "fault": fault and asdict(fault)})


def failure_in(reply: str) -> tuple[str, str, Fault | None] | None:
    """Why a reply has no result, in which words, and what failed in the gate itself; None if it has one."""
    if "\n" in reply:
        return None
    document: Any = json.loads(reply)
    fault = document.get("fault")
    return str(document.get("why")), str(document.get("message")), None if fault is None else Fault(**fault)
