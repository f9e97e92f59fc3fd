"""What the adapter of each release relies on, pinned; see ``kvgate.adapters.signatures``.

The parameters of every symbol, by version, are in the file beside this one. ``python -m
kvgate.adapters.native_signatures native@VERSION…`` writes it anew, for an adapter that was made to fit what changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kvgate.adapters.releases import fetch, release_named
from kvgate.adapters.signatures import PINNED, parameters_of
from kvgate.kernel.child_process import run
from kvgate.kernel.errors import SystemUnavailableError

FILE = Path(__file__).with_suffix(".json")

_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
SYMBOLS = (
    *PINNED,
    f"{_MANAGER}.record_prefix_cache_stats",
    "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.remove_skipped_blocks",
    "vllm.v1.core.kv_cache_utils:KVCacheBlock",
    "vllm.v1.request:Request.__init__",
)
"""What any of the adapters touches; a release need not have all of them."""


@cache
def pins_in(file: Path) -> Mapping[str, Mapping[str, tuple[str, ...] | None]]:
    """By version, ``module:symbol`` to the names of its parameters; None where it is not there."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return {
        version: {path: None if names is None else tuple(names) for path, names in pins.items()}
        for version, pins in document.items()
    }


def pinned(version: str) -> Mapping[str, tuple[str, ...] | None]:
    """The symbols as they are in ``version``."""
    return pins_in(FILE)[version]


def _write(names: Sequence[str]) -> None:
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in names:
        release = release_named(name)
        code = "import json; from kvgate.adapters.native_signatures import seen; print(json.dumps(seen()))"
        path = f"import sys; sys.path.insert(0, {str(fetch(release))!r}); {code}"
        ended = run([sys.executable, "-c", path], stderr=None)
        if ended.code:
            raise SystemUnavailableError(f"{release.name}: its signatures cannot be read")
        document[release.version] = json.loads(ended.output.splitlines()[-1])
    FILE.write_text(in_lines(document), encoding="utf-8")


def in_lines(document: Mapping[str, Mapping[str, Sequence[str] | None]]) -> str:
    """Pins by version as a JSON document, a line for each symbol, oldest version first."""
    ordered = sorted(document.items(), key=lambda item: tuple(map(int, item[0].split("."))))
    versions = (
        json.dumps(version)
        + ": {\n"
        + ",\n".join(f"  {json.dumps(path)}: {json.dumps(pin)}" for path, pin in pins.items())
        + "\n}"
        for version, pins in ordered
    )
    return "{\n" + ",\n".join(versions) + "\n}\n"


def seen() -> Mapping[str, tuple[str, ...] | None]:
    """The symbols as they are in this process."""
    return {path: parameters_of(path) for path in SYMBOLS}


if __name__ == "__main__":
    _write(sys.argv[1:])
