"""A user's own connector: both of its halves as they are, on tensors of the CPU.

Each slot of a block is a number that stands for its group and the prefix up to its token, so what a connector brings is
what ghost memory reads.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from kvgate.kernel.errors import UsageError
from kvgate.levels.tiers.memory import Content, Number, TierMemory
from kvgate.levels.tiers.operations import CONFIG_CHARACTERS_MAX
from kvreference.settings import Settings

HOSTED: Mapping[str, str] = {
    "lmcache": "kvgate.levels.tiers.adapter.lmcache_connector:LMCache",
    "ascend-store": "kvgate.levels.tiers.adapter.ascend_store:AscendStore",
}
"""Connectors of others that run as a user's own does, by name."""


class Chosen:
    """The connector of this process, and what it is configured with."""

    name = ""
    target: tuple[str, str] = ("", "")
    """Its module and its class."""
    config: Mapping[str, Any] = {}
    one_group = False
    """Whether it is for models with one group alone."""
    seen: ClassVar[Counter[str]] = Counter()
    """How often each thing happened in the cases that were run with it; see ``NOT_SEEN``."""

    @classmethod
    def document(cls) -> str:
        """What it is configured with, as JSON."""
        return json.dumps(cls.config, sort_keys=True)


def choose(name: str, config: Mapping[str, Any] | None = None) -> None:
    """Let cases of this process run with the connector MODULE:CLASS.

    Raises:
        UsageError: it cannot be imported, is not a connector, or lacks a method.
    """
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA

    module, _, attribute = HOSTED.get(name, name).partition(":")
    if not module or not attribute:
        raise UsageError(f"--connector {name}: write MODULE:CLASS")
    try:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        found = getattr(import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--connector {name} cannot be imported: {type(error).__name__}: {error}") from error
    if found is None:
        raise UsageError(f"--connector {name}: {module} has no {attribute}")
    if not inspect.isclass(found) or not issubclass(found, KVConnectorBase_V1):
        raise UsageError(f"--connector {name} is not a subclass of KVConnectorBase_V1")
    lacks = sorted(getattr(found, "__abstractmethods__", ()))
    if lacks:
        raise UsageError(f"--connector {name} lacks {', '.join(lacks)}")
    Chosen.name, Chosen.config, Chosen.seen = name, dict(config or {}), Counter()
    Chosen.target = module, attribute
    Chosen.one_group = not issubclass(found, SupportsHMA)
    try:
        is_too_long = len(Chosen.document()) > CONFIG_CHARACTERS_MAX
    except (TypeError, ValueError) as error:
        raise UsageError(f"the configuration of --connector {name} cannot be written as JSON: {error}") from error
    if is_too_long:
        raise UsageError(f"the configuration of --connector {name} is longer than {CONFIG_CHARACTERS_MAX} characters")


def choose_hosted(name: str) -> None:
    """Let cases of this process run with a connector of ``HOSTED``, if they do not yet.

    Raises:
        UsageError: it cannot be imported.
    """
    if Chosen.name != name:
        choose(name)


def configured(document: str) -> dict[str, Any]:
    """What a trace says a connector is configured with.

    Raises:
        UsageError: it is not an object in JSON.
    """
    try:
        found = json.loads(document or "{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the trace's configuration of the connector is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("the trace's configuration of the connector is not an object")
    return found


LOADS, WAITING_LOADS = "loads within a step", "loads that a request waits for"
FAILED, FAILED_ENDS = "loads that fail and are computed again", "loads that fail and end their request"
STORES_AFTER_END = "blocks that are kept after their request has ended, until they are stored"
ABORTS, PREEMPTIONS, RESETS = "requests that are aborted", "requests that are preempted", "resets of its cache"
ASYNCHRONOUS, DRAFTS_AHEAD = "asynchronous steps", "asynchronous steps that verify drafts"
OUT_OF_ORDER, LOST = "jobs that end before one that began earlier", "jobs that never end"
WAITED_FOR, HELD_UP = "engines that wait for such a job", "requests that wait for such a job at the end"
NOT_SEEN: tuple[str, ...] = (
    *(LOADS, WAITING_LOADS, FAILED, FAILED_ENDS, STORES_AFTER_END),
    *(ABORTS, PREEMPTIONS, RESETS, ASYNCHRONOUS, DRAFTS_AHEAD),
)
"""What a report says was not tested if it never happened."""


def not_seen() -> tuple[str, ...]:
    """What did not happen in any case of the connector, as sentences for a report."""
    return tuple(f"{each[0].upper()}{each[1:]}: none happened." for each in NOT_SEEN if not Chosen.seen[each])


def configuration(settings: Settings, chunks: int) -> dict[str, Any]:
    """How vLLM is configured to use it.

    Raises:
        UsageError: no connector was chosen.
    """
    if not Chosen.name:
        raise UsageError("a case of a connector of your own: name it with kvgate check --connector MODULE:CLASS")
    module, attribute = Chosen.target
    own = import_module(module).configuration(settings, chunks) if Chosen.name in HOSTED else {}
    return {
        "kv_connector": attribute,
        "kv_connector_module_path": module,
        "kv_connector_extra_config": {**own, **Chosen.config},
    }


PAGE_BYTES = 2 * 2**20


class Device(MutableMapping[int, Content]):
    """The device's blocks, in one tensor that all layers share."""

    def __init__(self, settings: Settings) -> None:
        import torch

        size = settings.geometry.groups[0].block_size_tokens
        self.groups = len(settings.geometry.groups)
        # Some devices have pages of 2 MiB, and their connectors ask for memory that begins with one.
        memory = torch.zeros(settings.blocks * size + PAGE_BYTES // 8, dtype=torch.int64)
        first = -memory.data_ptr() % PAGE_BYTES // 8
        self.tensor = memory[first : first + settings.blocks * size].view(settings.blocks, size, 1)

    def numbers(self, content: Content) -> list[int]:
        """What the slots of a block hold that has this content."""
        group, slots = content
        return [0 if slot is None else 1 + slot * self.groups + group for slot in slots]

    def group_of(self, number: int) -> int:
        """The group of what a slot's number stands for."""
        return (number - 1) % self.groups

    def __getitem__(self, block: int) -> Content:
        numbers = self.tensor[block].flatten().tolist()
        written = [number for number in numbers if number]
        if not written:
            raise KeyError(block)
        group = self.group_of(written[0])
        # What is of another group is nothing of this one.
        slots = (
            (number - 1) // self.groups if number and self.group_of(number) == group else None for number in numbers
        )
        return group, tuple(slots)

    def __setitem__(self, block: int, content: Content) -> None:
        self.tensor[block] = self.tensor.new_tensor(self.numbers(content)).unsqueeze(-1)

    def __delitem__(self, block: int) -> None:
        self.tensor[block] = 0

    def __iter__(self) -> Any:
        return iter(range(len(self.tensor)))

    def __len__(self) -> int:
        return len(self.tensor)


class Own:
    """The halves of a user's own connector."""

    def __init__(self, connector: Any, worker: Any, memory: TierMemory, *_rest: object) -> None:
        del connector
        self._worker = worker
        self._device = Device(memory.settings)
        memory.device = self._device
        self._layers: Sequence[str] = ()

    def register(self, layers: Sequence[str]) -> None:
        """Hand the device's tensors to the worker's half."""
        self._layers = layers
        self._worker.register_kv_caches(dict.fromkeys(layers, self._device.tensor))

    def load_layers(self) -> None:
        """Let the worker's half wait for what each layer reads."""
        for layer in self._layers:
            self._worker.wait_for_layer_load(layer)

    def save_layers(self) -> None:
        """Show the worker's half each layer after it was computed."""
        metadata: Any = None
        for layer in self._layers:
            self._worker.save_kv_layer(layer, self._device.tensor, metadata)

    def patched(self) -> Sequence[tuple[str, Any]]:
        """See ``Half``."""
        return ()

    def shown(self, metadata: Any) -> None:
        """See ``Half``."""

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """See ``Half``: it is asked for nothing that the interface does not have."""
        del requests
        return set()

    def remaining(self) -> Mapping[str, int]:
        """See ``Half``."""
        return {}
