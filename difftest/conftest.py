"""``pytest difftest/``: the gate as a test run, with the options of ``kvgate check``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from kvgate.adapters.registry import Loaded, load_system
from kvgate.cli.check import parse_duration
from kvgate.gate.profiles import PROFILES, models_named
from kvgate.kernel.errors import SystemUnavailableError, UsageError

# Derandomised, so that the gate says the same of the same code every time; no deadline, for machines are noisy.
settings.register_profile(
    "gate",
    derandomize=True,
    deadline=None,
    max_examples=25,
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
    # Without the phase that looks for an explanation: the divergence is one, and the phase takes minutes.
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    print_blob=False,
)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvgate", "the gate")
    group.addoption("--sut", default="stock", help="the system under test: stock, reference or module:factory")
    group.addoption("--preload", action="append", default=[], type=Path, help="a Python file to run first")
    group.addoption("--model", action="append", default=[], help="a model preset or JSON file")
    group.addoption("--profile", default="quick", choices=list(PROFILES), help="how much is run")
    group.addoption("--seed", default=0, type=int, help="the seed that every case follows from")
    group.addoption("--time-budget", default=None, help="stop after, for example, 60s")
    group.addoption("--monitors-only", action="store_true", help="judge without the reference")
    group.addoption("--report", default=None, type=Path, help="write reports and reproducers to this directory")
    live = parser.getgroup("kvgate-live", "a live worker: with any of these, nothing else is run")
    live.addoption("--live", metavar="URL", help="a running OpenAI-compatible server to drive, http://HOST:PORT")
    live.addoption(
        "--live-spawn",
        metavar="MODEL",
        nargs="?",
        const="gemma-3",
        help="start vLLM on this machine's CPU with a tiny model (gemma-3, gemma-4 or gpt-oss), and drive that",
    )
    live.addoption(
        "--live-tolerance",
        metavar="X",
        type=float,
        default=None,
        help="how much log-probabilities may differ; 0.001 if not given, and about 0.1 for bfloat16",
    )
    live.addoption("--npu", action="store_true", help="run the device tests on this machine's NPU")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The gate by itself runs in one process: in order, and with one system under test."""
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return 0 if all(path.resolve().is_relative_to(Path(__file__).parent) for path in named) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per model, so that a failure names it."""
    if "model" in metafunc.fixturenames:
        try:
            models = models_named(metafunc.config.getoption("--model"))
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        metafunc.parametrize("model", models, ids=lambda model: model.name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What says most in the least time comes first: with ``-x`` a fault is told in seconds."""
    wanted = wanted_files(config)
    # Tests of other folders may be in the same run; this file speaks for its own folder.
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = [item for item in ours if item.path.name not in wanted and (wanted or item.path.name in LIVE)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: next((rank for rank, name in enumerate(_FIRST) if item.name.startswith(name)), 99))


LIVE = ("test_live.py", "test_npu.py")
"""What needs a worker or a device, and is run when one is named."""


def wanted_files(config: pytest.Config) -> tuple[str, ...]:
    """Of the files in ``LIVE``, those that the options ask for; if any, nothing else is run."""
    if config.getoption("--live") and config.getoption("--live-spawn"):
        raise pytest.UsageError("--live and --live-spawn: give one of them")
    if config.getoption("--npu"):
        return LIVE
    return LIVE[:1] if config.getoption("--live") or config.getoption("--live-spawn") else ()


_FIRST = (
    "test_it_is_proved",
    "test_the_reference_does",
    "test_no_divergence[",
    "test_a_planted",
    "test_no_divergence_u",
)
"""How the names of the tests begin that come first, in order; Hypothesis, which takes longest, comes last."""


@pytest.fixture(scope="session")
def system(pytestconfig: pytest.Config) -> Loaded:
    """The system under test; without it nothing can be said, and nothing passes."""
    try:
        return load_system(pytestconfig.getoption("--sut"), pytestconfig.getoption("--preload"))
    except (SystemUnavailableError, UsageError) as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def seconds(pytestconfig: pytest.Config) -> float | None:
    """The time budget of one test, in seconds."""
    text = pytestconfig.getoption("--time-budget")
    try:
        return None if text is None else parse_duration(text)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
