"""What ``pytest -p kvgate.sanitizer`` does: each test runs under the sanitizer.

A test in which a block was misused fails, even if it is skipped or expected to fail. A check of the sanitizer that
fails itself is an error in the teardown of the test in which it did, so that the run does not pass.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvgate.sanitizer.adapter.hooks import Sanitizer
    from kvgate.sanitizer.misuse import Misuse

_SHOWN_MAX = 5
"""How many misuses of one test are printed."""
_FOUND_MAX = 1000
_FAILED = "kvgate sanitizer: a check failed and was left out"


class SanitizedTests:
    """Runs each test under the sanitizer; a test in which a block was misused fails."""

    def __init__(self, config: pytest.Config) -> None:
        self.sanitizer: Sanitizer | None = None
        self.found: list[Misuse] = []
        self.tests = 0
        self.pools = 0
        self.misused = 0
        self._failures_reported = 0
        # With pytest-xdist the tests run in other processes, and their counts stay there.
        self._counts = not hasattr(config, "workerinput") and not config.getoption("numprocesses", None)

    def _note(self, misuse: Misuse) -> None:
        if len(self.found) < _FOUND_MAX:
            self.found.append(misuse)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Place the hooks when all tests have imported what they import."""
        if session.config.getoption("collectonly", False):
            return
        try:
            from kvgate.sanitizer.adapter.hooks import Sanitizer
        except ImportError as error:
            raise pytest.UsageError(f"the kvgate sanitizer needs vLLM, which cannot be imported: {error}") from error
        self.sanitizer = Sanitizer(self._note, keeps_pools=True)
        self.sanitizer.install()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the fixtures."""
        self.tests += 1
        with self._phase(item, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the test; at its end nothing may have leaked."""
        with self._phase(item, "call"):
            answer = yield
            if self.sanitizer is not None:
                self.sanitizer.at_end()
            return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch what the fixtures clean up."""
        with self._phase(item, "teardown"):
            answer = yield
        if self.sanitizer is not None:
            self.pools += self.sanitizer.forget_pools()
            fresh = self.sanitizer.failures[self._failures_reported :]
            self._failures_reported += len(fresh)
            if fresh:
                text = "\n".join(fresh)
                pytest.fail(
                    f"{_FAILED}, which is a defect of the sanitizer and not of the test:\n{text}", pytrace=False
                )
        return answer

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Let no mark turn a misuse into a pass: neither a skip nor an expected failure."""
        del item
        report = yield
        if self.found and report.outcome != "failed":
            report.outcome, report.longrepr = "failed", self._text()
            if hasattr(report, "wasxfail"):
                del report.wasxfail
        return report

    @contextmanager
    def _phase(self, item: pytest.Item, phase: str) -> Iterator[None]:
        """What is found fails the phase. If it has failed already, what is found is added to its report."""
        self.found = []
        try:
            yield
        except BaseException:
            if self.found:
                self.misused += 1
                item.add_report_section(phase, "kvgate sanitizer", self._text())
            raise
        if self.found:
            self.misused += 1
            pytest.fail(self._text(), pytrace=False)

    def _text(self) -> str:
        shown = [str(misuse) for misuse in self.found[:_SHOWN_MAX]]
        more = len(self.found) - len(shown)
        return "\n\n".join([*shown, *([f"and {more} more"] if more else [])])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was watched: a run in which no pool was built has tested nothing."""
        if self.sanitizer is None or not self._counts:
            return
        rules = "all rules" if self.sanitizer.is_exact else "the rules that hold in every release"
        watched = f"{self.tests} tests, {self.pools} block pools, {self.misused} tests with a misuse; {rules}"
        terminalreporter.write_line(f"kvgate sanitizer: {watched}")
        for failure in self.sanitizer.failures[:_SHOWN_MAX]:
            terminalreporter.write_line(f"{_FAILED}: {failure}", red=True)
