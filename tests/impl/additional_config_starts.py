"""A program: vLLM's configuration, built with the plug-in loaded, in children that differ in it. It prints JSON.

It is started in a process of its own, for a process has one vLLM.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

OPTION = {"swa_retention": {"pins": True, "pin_min_drop_size": 2}}


def import_vllm() -> str:
    """Import the release that is first on the path, for the CPU; its version."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vars(vllm.platforms)["_current_platform"] = CpuPlatform()
    import vllm.config.vllm
    import vllm.plugins
    import vllm.v1.core.kv_cache_manager
    import vllm.v1.core.sched.scheduler

    return str(vars(vllm.version)["__version__"]).partition("+")[0]


def functions() -> dict[str, Any]:
    """All functions of vLLM's modules and classes."""
    found: dict[str, Any] = {}
    for module in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        for name, value in list(vars(sys.modules[module]).items()):
            if inspect.isfunction(value):
                found[f"{module}:{name}"] = value
            elif inspect.isclass(value) and value.__module__ == module:
                found |= {f"{module}:{name}.{each}": member for each, member in list(vars(value).items())}
    return found


def load() -> None:
    """As the first thing that vLLM does."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # type: ignore[no-untyped-call]  # vLLM's own, without types


def build(**keywords: Any) -> None:
    """A configuration, as vLLM's command line builds it."""
    from vllm.config.vllm import VllmConfig

    VllmConfig(**keywords)


def state() -> list[Any]:
    """The states of the pins' symbols, and the plug-in's variables."""
    from swa_retention.config import VARIABLES
    from swa_retention.features import PINS
    from swa_retention.register import look

    # Packages that are not installed here, or not imported yet, cannot be inspected.
    states = {look(patch).state.value for patch in PINS.patches} - {"absent", "waiting"}
    return [sorted(states), {name: os.environ[name] for name in VARIABLES if name in os.environ}]


def nothing() -> list[Any]:
    """The plug-in is loaded."""
    before = functions()
    load()
    after = functions()
    return [[name for name, each in after.items() if before.get(name, each) is not each], *state()]


def without_the_key() -> list[Any]:
    """A configuration of nothing."""
    load()
    build()
    return state()


def with_the_key() -> list[Any]:
    """A configuration that switches pins on."""
    load()
    build(additional_config=OPTION)
    return state()


def again() -> list[Any]:
    """And another one, and one of nothing: vLLM makes some as it starts."""
    with_the_key()
    build(additional_config=OPTION)
    build()
    return state()


def forked() -> list[Any]:
    """A process that is forked from the one that built it."""
    with_the_key()
    seen: list[Any] = child(state)
    return seen


def spawned() -> bool:
    """A process that is started by the one that built it, and reads the environment alone."""
    with_the_key()
    program = "from swa_retention.config import read; print(read().pins)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ended.stdout == "True\n"


def contradiction() -> str:
    """A later configuration that says otherwise."""
    with_the_key()
    return error_of({"swa_retention": {"pins": 0}})


def refused() -> list[Any]:
    """The settings that one release rejects."""
    load()
    return [error_of({"swa_retention": {"retention_interval": "auto"}}), "patched" in state()[0]]


def error_of(additional_config: object) -> str:
    """How a start with it ends."""
    try:
        build(additional_config=additional_config)
    except Exception as error:
        return str(error)
    return ""


def child(case: Callable[[], Any]) -> Any:
    """The result of a case in a child of its own."""
    reader, writer = os.pipe()
    if not os.fork():
        try:
            os.write(writer, json.dumps(case()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return json.loads(pipe.read())


CASES = (nothing, without_the_key, with_the_key, again, forked, spawned, contradiction, refused)

if __name__ == "__main__":
    version = import_vllm()
    print(json.dumps({"version": version} | {case.__name__: child(case) for case in CASES}))
