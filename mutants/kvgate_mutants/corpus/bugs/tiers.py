"""Reported bugs of KV connectors with a tier on the host, each shown by a stored case."""

from __future__ import annotations

from attrs import evolve

from kvgate.levels.scheduler.operations import ResetCache, Serve
from kvgate_mutants.corpus.bug import Bug, Control, Kind, Trial
from kvgate_mutants.corpus.scenario import Tiers, stored
from kvgate_mutants.mutants import native_0_33_0
from kvreference.operations import Run

VLLM = "https://github.com/vllm-project/vllm"


def _with_room(case: Tiers) -> Tiers:
    return evolve(case, settings=evolve(case.settings, blocks=4 * case.settings.blocks))


def _without_resets(case: Tiers) -> Tiers:
    return evolve(case, operations=tuple(each for each in case.operations if not isinstance(each, ResetCache)))


def _in_step(case: Tiers) -> Tiers:
    return evolve(case, stage=evolve(case.stage, asynchronous=False))


def _of_prompts(case: Tiers) -> Tiers:
    return evolve(case, stage=evolve(case.stage, stores_answers=False))


def _short(case: Tiers) -> Tiers:
    (serve,) = case.operations
    assert isinstance(serve, Serve)
    return evolve(case, operations=(evolve(serve, arrival=evolve(serve.arrival, prompt=(Run(0, 8),))),))


def _attention(case: Tiers) -> Tiers:
    groups = tuple(each for each in case.settings.geometry.groups if not each.keeps_states)
    return evolve(case, settings=evolve(case.settings, geometry=evolve(case.settings.geometry, groups=groups)))


CHANGES = {
    "a pool with room for all": _with_room,
    "no reset": _without_resets,
    "synchronous steps": _in_step,
    "answers are not stored": _of_prompts,
}


def _bug(
    number: int, name: str, kind: Kind, thread: str, title: str, affected: str, release: str, seen: str, change: str
) -> Bug:
    """A bug that a published release has: the change leaves out what brings it about."""
    statement, _, words = seen.partition(": ")
    case = stored(f"vllm-{thread.rpartition('/')[2]}.jsonl")
    system = f"native@{release}"
    calm = Control(change, system, CHANGES[change](case))
    trial = Trial(system, case, (statement,), words=words, otherwise=calm)
    return Bug(number, name, kind, f"{VLLM}/{thread}", title, affected, (trial,))


_SHARED = evolve(stored("vllm-42571.jsonl"), settings=evolve(stored("vllm-42571.jsonl").settings, scratch_first=True))

CONNECTORS = (
    _bug(
        44,
        "load-into-a-block-of-another-group",
        Kind.CRASH,
        "issues/43884",
        "OffloadingConnector asserts that what it loads goes to blocks of its own; a block is in two tables.",
        "up to 0.23.0",
        "0.23.0",
        "KV-SYS-01: AssertionError",
        "a pool with room for all",
    ),
    _bug(
        45,
        "expected-hit-tokens",
        Kind.CRASH,
        "issues/39702",
        "SimpleCPUOffloadConnector finds none of the tokens that it has promised.",
        "up to 0.23.0",
        "0.21.0",
        "KV-SYS-01: hit tokens, got 0",
        "a pool with room for all",
    ),
    _bug(
        46,
        "store-waits-for-no-step",
        Kind.WRONG_HIT,
        "issues/45704",
        "SimpleCPUOffloadConnector stores blocks that a step still writes.",
        "0.21.0 to 0.23.0",
        "0.23.0",
        "KV-TIER-04",
        "synchronous steps",
    ),
    _bug(
        47,
        "block-stored-twice",
        Kind.DOUBLE_FREE,
        "issues/42571",
        "A store of SimpleCPUOffloadConnector names a block twice, and it is freed twice.",
        "0.21.0 to 0.23.0",
        "0.22.1",
        "KV-INV-03",
        "a pool with room for all",
    ),
    _bug(
        48,
        "rejected-request-hides-loaded-ones",
        Kind.HANG,
        "issues/57841",
        "A request that is rejected ends the scan of the queue, although later ones hold the blocks that it lacks.",
        "up to 0.30.0",
        "0.23.0",
        "KV-TIER-06",
        "a pool with room for all",
    ),
    _bug(
        49,
        "final-sampled-token-is-stored",
        Kind.WRONG_HIT,
        "pull/54288",
        "The block that an answer ends with is stored, although its last token is never computed.",
        "0.27.1",
        "0.27.1",
        "KV-TIER-04",
        "answers are not stored",
    ),
    _bug(
        50,
        "stale-window-blocks-are-stored",
        Kind.WRONG_HIT,
        "pull/42959",
        "A block that a window has left is stored later, with what another request has written there.",
        "0.21.0 to 0.22.1",
        "0.22.1",
        "KV-TIER-04",
        "a pool with room for all",
    ),
    _bug(
        51,
        "load-next-to-stores",
        Kind.CRASH,
        "issues/46014",
        "A preempted request that loads while its stores are under way ends the engine.",
        "0.21.0 to 0.23.0",
        "0.23.0",
        "KV-SYS-01: AssertionError",
        "no reset",
    ),
    _bug(
        52,
        "jobs-named-after-a-reset",
        Kind.CRASH,
        "pull/48102",
        "After a reset of the connector's cache, requests name jobs that it has forgotten.",
        "0.22.1 to 0.23.0",
        "0.23.0",
        "KV-SYS-01: KeyError",
        "no reset",
    ),
    _bug(
        53,
        "loads-of-another-connector",
        Kind.WRONG_HIT,
        "pull/46951",
        "OffloadingConnector does not see the blocks that another connector of a MultiConnector loads.",
        "0.23.0 to 0.30.0",
        "0.30.0",
        "KV-TIER-02",
        "a pool with room for all",
    ),
    _bug(
        54,
        "load-waits-for-no-step",
        Kind.WRONG_HIT,
        "issues/47282",
        "A load of SimpleCPUOffloadConnector writes blocks that a step still reads.",
        "0.21.0 to 0.23.0",
        "0.21.0",
        "KV-TIER-02",
        "a pool with room for all",
    ),
    Bug(
        55,
        "idle-engine-keeps-its-last-stores",
        Kind.LEAK,
        f"{VLLM}/pull/42611",
        "Stores that end when no request is left are noticed with the next request.",
        "0.21.0",
        (
            Trial(
                "native@0.21.0",
                stored("vllm-42611.jsonl"),
                ("KV-TIER-05",),
                otherwise=Control("a prompt without a full block", "native@0.21.0", _short(stored("vllm-42611.jsonl"))),
            ),
        ),
    ),
    Bug(
        56,
        "offloading-assertion-with-states",
        Kind.CRASH,
        f"{VLLM}/issues/54914",
        "OffloadingConnector's assertion about the blocks of a load fails on a model with states.",
        "0.27.1 to 0.29",
        (
            Trial(
                "native@0.27.1",
                stored("vllm-54914.jsonl"),
                ("KV-SYS-01",),
                words="AssertionError",
                otherwise=Control("no group of states", "native@0.27.1", _attention(stored("vllm-54914.jsonl"))),
            ),
        ),
    ),
    Bug(
        57,
        "peer-sglang-window-pages-lost",
        Kind.LEAK,
        "https://github.com/sgl-project/sglang/issues/27586",
        "A pool of sliding-window pages loses one page after the other.",
        "SGLang of the middle of 2026",
        (
            Trial(
                "native@0.33.0",
                _SHARED,
                ("KV-LEAK-01",),
                (native_0_33_0.named("simple-blocks-of-a-store-stay-held"),),
                why_mutant="SGLang's pool is not driven; here a store keeps each block that it has read",
                analogue=True,
            ),
        ),
    ),
)
