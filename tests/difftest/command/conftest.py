"""The command in this process: quicker than one of its own, with the same exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvgate.cli.app import main
from kvgate.gate.profiles import Profile

from .stage import FAULTY, Ended


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that holds a module with faulty systems."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("faulty", None)
    sys.modules.pop("kvgate_preload_0", None)


@pytest.fixture(autouse=True)
def _small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Campaigns in this process run for a second at most."""
    monkeypatch.setattr("kvgate.gate.profiles.PROFILES", {"quick": Profile(1500)})


@pytest.fixture
def kvgate(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs the command in ``here`` and says how it ended."""

    def run(*arguments: str) -> Ended:
        assert here == Path.cwd()
        monkeypatch.setattr(sys, "argv", ["kvgate", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        # An exit without a code, or with none, is success.
        return Ended(int(ended.value.code or 0), output.out, output.err)

    return run
