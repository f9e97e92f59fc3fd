"""``pytest difftest/``: the gate as a test run, with the options of ``kvgate check``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, settings

from kvgate.adapters.device.npu import device_name, missing_npu, use_npu
from kvgate.adapters.registry import Loaded, is_built_in, load_system, models_of
from kvgate.adapters.releases import RELEASES, system_installed
from kvgate.cli.check import begun_with, parse_duration, publish
from kvgate.gate.campaign import Campaign
from kvgate.gate.case_runner import Lane, Trials
from kvgate.gate.level import LevelChoice
from kvgate.gate.machine import DivergenceError, machine_for, search
from kvgate.gate.profiles import PROFILES, models_named
from kvgate.gate.verdict import Verdict
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import Model
from kvgate.kernel.output import UNAVAILABLE, Format
from kvgate.levels.registry import LEVELS, not_tested, prepare

EXAMPLES_OF = {"blocks": 1, "scheduler": 3, "pair": 3, "worker": 20}
"""By what the number of a state machine's cases is divided: schedulers take longer to build."""

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
    group.addoption(
        "--sut",
        default=system_installed(),
        help="the system under test: stock, native@VERSION, reference or module:factory; default: what is installed",
    )
    group.addoption("--preload", action="append", default=[], type=Path, help="a Python file to run first")
    group.addoption("--model", action="append", default=[], help="a model preset or JSON file")
    group.addoption("--profile", default="quick", choices=list(PROFILES), help="how much is run")
    group.addoption("--seed", default=0, type=int, help="the seed that every case follows from")
    group.addoption("--time-budget", default=None, help="stop after, for example, 60s")
    group.addoption("--monitors-only", action="store_true", help="check without the reference")
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
    live.addoption("--api-key", metavar="KEY", help="sent to the server with each request, as a bearer token")
    live.addoption(
        "--live-seconds",
        metavar="N",
        type=float,
        default=60.0,
        help="how long one exercise may take; 60 if not given. What is not answered by then hangs",
    )
    live.addoption(
        "--live-tolerance",
        metavar="X",
        type=float,
        default=None,
        help="how much log-probabilities may differ; 0.001 if not given, and about 0.1 for bfloat16",
    )
    live.addoption(
        "--npu",
        metavar="N",
        nargs="?",
        const="0",
        help="run the tests of the worker and of the plug-in's copies on this machine's NPU number N, 0 if not given",
    )
    live.addoption(
        "--npu-sim",
        action="store_true",
        help="run the tests of the worker and of the plug-in's copies on the CPU, if the machine has no NPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    """End the run at once if the system is unknown, or if an NPU is required and missing."""
    system = config.getoption("--sut")
    if not is_built_in(system) and ":" not in system:
        raise pytest.UsageError(f"--sut {system}: unknown system; kvgate fetch --list names the releases")
    if system in RELEASES and not config.getoption("--model"):
        # Operations are divided among the same ones.
        config.option.model = list(models_of(RELEASES[system]))
    number = npu_number(config)
    if config.getoption("--npu-sim") and number is not None:
        raise pytest.UsageError("--npu and --npu-sim: give one of them")
    missing = None if number is None else missing_npu(number)
    if missing is not None:
        pytest.exit(
            f"--npu: {missing}. Without an NPU, pytest difftest/ --npu-sim runs the same tests on the CPU",
            returncode=UNAVAILABLE,
        )
    if number is not None:
        use_npu(number)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Where the worker's tests are run, and what that leaves out."""
    if config.getoption("--npu-sim"):
        where = "CPU; difftest/ASCEND.md lists what stands in for what"
    elif npu_number(config) is not None:
        where = device_name(npu_number(config) or 0)
    else:
        return []
    return [f"worker: on {where}; ACL graph mode: none, for steps are prepared and no model is run"]


def npu_number(config: pytest.Config) -> int | None:
    """The number of the NPU that is asked for; None if none is."""
    text = config.getoption("--npu")
    if text is not None and not text.isdecimal():
        raise pytest.UsageError(f"--npu={text}: give the number of a device, as in pytest difftest/ --npu=1")
    return None if text is None else int(text)


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
    """The quickest telling tests come first: with ``-x`` a fault is reported in seconds."""
    wanted = wanted_files(config)
    # Tests of other folders may be in the same run; this file speaks for its own folder.
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = [item for item in ours if item.path.name not in wanted and (wanted or item.path.name in LIVE)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: next((rank for rank, name in enumerate(_FIRST) if item.name.startswith(name)), 99))


LIVE = ("test_live.py", "test_npu.py", "test_worker.py")
"""What needs a worker or a device, and is run when one is named."""


def wanted_files(config: pytest.Config) -> tuple[str, ...]:
    """Of the files in ``LIVE``, those that the options ask for; if any, nothing else is run."""
    if config.getoption("--live") and config.getoption("--live-spawn"):
        raise pytest.UsageError("--live and --live-spawn: give one of them")
    if config.getoption("--npu") is not None:
        return LIVE
    if config.getoption("--npu-sim"):
        return LIVE[1:]
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


@frozen
class Search:
    """How the gate looks for divergences at one level; what it finds fails the test, with the story."""

    config: pytest.Config
    capsys: pytest.CaptureFixture[str]
    seconds: float | None

    def seeded(self, choice: LevelChoice, system: Loaded, model: Model, models: int) -> None:
        """Cases that follow from the seed, as many as the profile says for all ``models`` together."""
        profile, seed = self.config.getoption("--profile"), self.config.getoption("--seed")
        monitors_only = self.config.getoption("--monitors-only")
        try:
            (prepared,) = prepare(
                choice, system, [model], profile, seed=seed, seconds=self.seconds, monitors_only=monitors_only
            )
        except UsageError as error:
            pytest.skip(str(error))
        planned = evolve(prepared.plan, operations=prepared.plan.operations // models)
        outcome = Campaign(prepared.trials, planned).run()
        preloads = self.config.getoption("--preload")
        verdict = outcome.of(begun_with(system, profile, planned.seed, prepared.trials.bench.checkers, preloads))
        if not verdict.agrees:
            publish(verdict, self.config.getoption("--report"), Format.TEXT, not_tested(choice, system.name))
            pytest.fail(self.capsys.readouterr().out, pytrace=False)
        assert verdict.operations > 0

    def by_hypothesis(
        self, choice: LevelChoice, system: Loaded, model: Model, preset: str, examples: int | None = None
    ) -> None:
        """A state machine, which shrinks what fails."""
        profile, seed = self.config.getoption("--profile"), self.config.getoption("--seed")
        level, seconds = LEVELS[choice.value], PROFILES[profile].shrink_seconds / 2
        try:
            bench = level.bench(system, level.monitors if self.config.getoption("--monitors-only") else level.gate)
            most = examples or settings().max_examples // EXAMPLES_OF[choice.value]
            search(machine_for(bench, Lane(model, preset)), settings(max_examples=most), seconds)
        except UsageError as error:
            pytest.skip(str(error))
        except DivergenceError as error:
            # What Hypothesis has left gets smaller where it did not look.
            smallest = Trials(bench).smallest(error.found, time.monotonic() + seconds)
            preloads = tuple(map(str, self.config.getoption("--preload")))
            verdict = Verdict(
                system.name, system.version, profile, seed, bench.checkers, found=(smallest,), preloads=preloads
            )
            # Hypothesis complains of the time that it was given.
            self.capsys.readouterr()
            publish(verdict, self.config.getoption("--report"), Format.TEXT, not_tested(choice, system.name))
            program = "\n".join(getattr(error, "__notes__", ()))
            pytest.fail(f"{self.capsys.readouterr().out}\n{program}", pytrace=False)


@pytest.fixture
def search_for(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str], seconds: float | None) -> Search:
    """The gate, with the options of this run."""
    return Search(pytestconfig, capsys, seconds)
