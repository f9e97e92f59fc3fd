"""Fingerprints.

Goal: the same source has the same fingerprint under every version of Python that the plug-in runs on, and another
source, or another function around it, has another. Method: a fingerprint that was written down, of a function with
what the versions' own notations differ in; the same by every other interpreter that is there; and wrappers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import pytest

from swa_retention import fingerprint as module
from swa_retention.fingerprint import digest, fingerprint

SAMPLE = '''
@staticmethod
def sample(table: dict[tuple[int, str], list[int]], *more: int, width=3) -> str | None:
    """What is not counted."""
    first, second = table[1, "one"], table[(1, "one")]
    text = f"a{first}" "b" f"{second!r:>{width}} and {width=}" f"" "c"
    spread = {**table}, [*first, *second], (yield_ := first[1:2, ...])
    with open(text) as one, open("two") as two:
        pass
    return u"unicode" if (text and not spread) else f"{text}"
'''
DIGEST = "3b976f1bd4eb6d7d"


def test_the_same_under_every_python() -> None:
    """On any Python, the digest is the recorded one."""
    assert DIGEST == digest(SAMPLE)


@pytest.mark.parametrize(
    ("before", "after"),
    [("width=3", "width=4"), ("!r", "!s"), ('"b"', '"B"'), ('"c"', ""), ("1:2", "1:3"), ("@staticmethod\n", "")],
)
def test_any_difference_is_seen(before: str, after: str) -> None:
    """In f-strings too, and in decorators."""
    assert before in SAMPLE
    assert DIGEST != digest(SAMPLE.replace(before, after))


def test_how_an_f_string_is_cut_is_not_seen() -> None:
    """Neighbouring pieces of text are one."""
    assert digest('f"a{b}cd"') == digest('f"a{b}" "c" "d" f""')


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12"])
def test_other_interpreters_say_the_same(version: str) -> None:
    """Those that are installed. The file needs nothing but Python."""
    program = "import runpy, sys; print(runpy.run_path(sys.argv[1])['digest'](sys.stdin.read()))"
    python = _python(version)
    if python is None:
        pytest.skip(f"no Python {version} is installed")
    said = subprocess.run(
        [python, "-W", "ignore", "-c", program, str(module.__file__)],
        input=SAMPLE,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert DIGEST == said.stdout.strip()


def _python(version: str) -> str | None:
    """An interpreter of this version: this one, or where uv, pyenv or the system keeps one."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = Path.home() / ".local" / "share" / "uv" / "python"
    for pattern, folder in ((f"versions/{version}.*/bin/python", home), (f"cpython-{version}.*/bin/python3", kept)):
        found = sorted(folder.glob(pattern))
        if found:
            return str(found[-1])
    system = Path(f"/usr/bin/python{version}")
    return str(system) if system.exists() else None


def plain(a: int) -> int:
    """The wrapped function."""
    return a + 1


def around(function: Any) -> Any:
    """A wrapper that says so."""

    @wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def test_a_wrapper_is_seen() -> None:
    """inspect, asked for the source of a function, shows that of the one it wraps."""
    assert fingerprint(plain) == fingerprint(plain)
    assert fingerprint(plain) != fingerprint(around(plain))
    assert fingerprint(around(plain)) == fingerprint(around(plain))
    assert fingerprint(around(plain)) != fingerprint(around(around(plain)))


def test_a_method_of_a_class_is_a_function() -> None:
    """Bound or cached, it is the same function."""
    assert fingerprint(plain) == fingerprint(staticmethod(plain))
    assert fingerprint(plain) == fingerprint(lru_cache(plain))
