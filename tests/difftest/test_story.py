"""The story of a divergence.

Goal: a reader learns what was promised, what happened and how to see it again. Method: an injected defect, found by the
lockstep itself, is described and its fixed parts are compared; every operation and answer is described.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from attrs import evolve

from kvgate.gate.story import describe, describe_answer, headline, tell
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.levels.manager import MANAGER
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Stage
from kvreference.answers import (
    Answer,
    Copies,
    Copy,
    Done,
    Granted,
    Happened,
    Hit,
    Partial,
    Refused,
    Shared,
    Statistics,
    Success,
)
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.events import Cleared, Removed, Stored
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Continue,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Reset,
    Rewind,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.scheduler.operations import Step, Submit
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, window_tokens=6))), blocks=16)
PROMPT = (Run(0, 8), Run(5000, 4))


class HeadFirst(Manager):
    """The reference with a defect: a request that ends releases its blocks from the head on."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)

    def roots(self) -> dict[str, object]:
        return {"manager": self}

    def name_of(self, request: int) -> str:
        return f"request {request}"


def find(operations: tuple[Operation, ...]) -> Found:
    """The first finding of the lockstep in ``HeadFirst``."""
    lockstep = Lockstep(HeadFirst(SETTINGS), Manager(SETTINGS), ())
    found = next(filter(None, map(lockstep.perform, operations)))
    return Found(found, MANAGER.case(SETTINGS, tuple(lockstep.performed), model="two groups", preset="tiny", seed=7))


FOUND = find((Arrive(0, PROMPT), Admit(0, 64), Finish(0)))

OPERATIONS = {
    Arrive(3, (Run(0, 80), Run(5000, 20))): "Request 3 arrives, prompt of 100 tokens: 0..79, 5000..5019",
    Arrive(0, (Run(5, 1),), Keys("a\n", "b", (Media("c", 0, 1),)), reads_cache=False): (
        r"Request 0 arrives, prompt of 1 token: 5; salt 'a\n'; LoRA 'b'; media 'c' at 0; not served from the cache"
    ),
    LookUp(1): "Look up request 1",
    Admit(3, 64): "Admit request 3, at most 64 tokens",
    Admit(3, 1, external_tokens=1): "Admit request 3, at most 1 token, up to 1 token from another node now",
    Admit(3, 64, external_tokens=9, loads=True): (
        "Admit request 3, at most 64 tokens, up to 9 tokens from another node later"
    ),
    Admit(3, 64, loads=True): "Admit request 3, at most 64 tokens",
    Schedule(3, 1): "Schedule request 3, at most 1 token",
    Sample(2, 1, 9, 0): "Sample for request 2: 1 draft accepted, token 9 sampled, 0 drafts proposed",
    Preempt(1): "Preempt request 1",
    Finish(1): "Finish request 1",
    Finish(1, sends=True): "Finish request 1, while another node still reads it",
    Abort(1): "Abort request 1",
    Transferred(1): "The transfer of request 1 is over",
    Transferred(1, succeeded=False): "The transfer of request 1 fails",
    Rewind(1, 16): "A load failed: of request 1, 16 tokens are valid",
    Pause(1): "A part of session 1 has ended",
    Continue(1, (Run(0, 2), Run(7, 1))): "Session 1 continues with 3 tokens: 0..1, 7",
    ReleaseSkipped(1): "Release the skipped blocks of request 1",
    CommonPrefix(1): "Ask for the common prefix of request 1",
    Evict(5): "Evict block 5",
    Dispatch(): "Dispatch the step to the worker",
    Reset(): "Reset the prefix cache",
    TakeEvents(): "Take the events",
    TakeStatistics(): "Take the statistics",
}

STORED = Stored(1, ("x", "y"), None, (1, 2), 1, None, ((), ()))
ANSWERS = {
    Done(): "done",
    Hit(8, ((0, 0, 5), (1, 2, 3, 7))): "a hit of 8 tokens, blocks by group: [2 null, 5], [1..3, 7]",
    Hit(9, ((1, 2), ()), (Partial(0, 7, 1), Partial(1, 3, 4))): (
        "a hit of 9 tokens, blocks by group: [1..2], [], 1 token of block 7 in group 0, 4 tokens of block 3 in group 1"
    ),
    Granted(4, ((1,), ()), external_tokens=3): (
        "granted, a hit of 4 tokens, 3 tokens from another node, new blocks by group: [1], []"
    ),
    Granted(4, ((1,), ()), external_tokens=1, loads=True): (
        "granted, a hit of 4 tokens, 1 token from another node later, new blocks by group: [1], []"
    ),
    Granted(0, ((1,), ())): "granted, a hit of 0 tokens, new blocks by group: [1], []",
    Refused(4, gate=True): "refused, the whole request does not fit, a hit of 4 tokens",
    Refused(1, gate=False): "refused, this step does not fit, a hit of 1 token",
    Copies(()): "copies: none",
    Copies((Copy(1, 3, 7, 4), Copy(0, 2, 8, 1))): "copies: 4 tokens of 3 to 7 in group 1; 1 token of 2 to 8 in group 0",
    Success(True): "it took effect",
    Success(False): "it had no effect",
    Shared((2, 0)): "leading blocks shared, by group: 2, 0",
    Happened(()): "no events",
    Happened((STORED, Removed("x"), Cleared())): "stored 2 blocks of group 1, removed 1 block, cleared",
    Happened((Removed("x"),) * 9): f"{'removed 1 block, ' * 6}and 3 more",
    Statistics(2, 20, 8, 1, 6, 4, reset=True): (
        "2 look-ups with 8 of 20 tokens hit; preempted: 1 look-up with 4 of 6 tokens hit; reset"
    ),
}


@pytest.mark.parametrize(("operation", "words"), OPERATIONS.items(), ids=str)
def test_an_operation_is_described(operation: Operation, words: str) -> None:
    """Each in its own words, on one line."""
    assert words == describe(operation)


@pytest.mark.parametrize(("answer", "words"), ANSWERS.items(), ids=str)
def test_an_answer_is_described(answer: Answer, words: str) -> None:
    """Each in its own words, on one line."""
    assert words == describe_answer(answer)


def test_no_operation_and_no_answer_is_forgotten() -> None:
    """A type added to the alphabet needs words, and a row above."""
    assert set(get_args(Operation)) == set(map(type, OPERATIONS))
    assert set(get_args(Answer)) == set(map(type, ANSWERS))


def test_a_long_prompt_is_counted_beyond_a_limit() -> None:
    """The runs beyond the limit are printed as a number of tokens."""
    story = describe(Arrive(0, tuple(Run(10 * i, 2) for i in range(20))))
    assert story.endswith(", 110..111, and 16 more")
    assert "prompt of 40 tokens" in story


def test_many_media_are_counted_beyond_a_limit() -> None:
    """The items beyond the limit are printed as a number."""
    media = tuple(Media(f"m{i}", i, 1) for i in range(8))
    assert describe(Arrive(0, PROMPT, Keys(media=media))).endswith("media 'm5' at 5; and 2 more media")


def test_the_fixed_parts_come_in_their_order() -> None:
    """The whole story of an injected defect."""
    expected = f"""\
KV-OP-07: {STATEMENTS["KV-OP-07"]}
step 2: Finish request 0
expected: 3
got: 1
smallest difference: free queue at position 9: 3 | 1
operations, each with the reference's answer:
     0  Request 0 arrives, prompt of 12 tokens: 0..7, 5000..5003 -> done
     1  Admit request 0, at most 64 tokens -> granted, a hit of 0 tokens, new blocks by group: [1..3], [4..6]
>    2  Finish request 0 -> done
to see it again:
  kvgate replay 'traces of today/0.jsonl'
model two groups, preset tiny, seed 7
system stock, version 0.20.2
found by lockstep, seen 1 time"""
    assert expected == tell(FOUND, system="stock", version="0.20.2", reproducer=Path("traces of today/0.jsonl"))


def test_a_headline_is_one_line() -> None:
    """The id, the step and the operation."""
    assert headline(FOUND) == "KV-OP-07 at step 2: Finish request 0"


def test_without_a_trace_file_the_story_says_so() -> None:
    """No command that cannot work."""
    story = tell(FOUND, system="stock", version="0.20.2")
    assert "to see it again: no trace file was written" in story.splitlines()
    assert "kvgate replay" not in story


def test_a_long_run_shows_its_last_operations() -> None:
    """The last thirty, and how many were left out before them."""
    found = find((*(TakeEvents(),) * 40, Arrive(0, PROMPT), Admit(0, 64), Finish(0)))
    lines = tell(found, system="stock", version="0.20.2").splitlines()
    start = lines.index("  ... 13 operations before these left out") + 1
    assert lines[start].startswith("    13  ")
    assert lines[start + 29] == ">   42  Finish request 0 -> done"


def test_the_operations_may_be_left_out() -> None:
    """For a message that has little room."""
    story = tell(FOUND, system="stock", version="0.20.2", operations_max=0)
    assert "3 operations led there" in story.splitlines()
    assert "Admit" not in story


def test_what_is_found_at_rest_is_reported_after_the_last_operation() -> None:
    """No operation diverges, so the end is what is marked."""
    divergence = Divergence(3, None, "leak", Difference("KV-LEAK-01", "blocks held", "none", "1: [4]"))
    lines = tell(evolve(FOUND, divergence=divergence), system="stock", version="0.20.2").splitlines()
    assert lines[1] == "step 3: every request has ended: checking what remains"
    assert [line for line in lines if line.startswith(">")] == [
        ">    3  every request has ended: checking what remains"
    ]
    assert headline(evolve(FOUND, divergence=divergence)) == "KV-LEAK-01 at step 3: at rest"


@pytest.mark.parametrize(
    ("detector", "checked"),
    [
        ("progress", "the scheduler takes a step: checking whether any request makes progress"),
        ("scheduler", "the scheduler's books are compared with what was done"),
        ("batch", "comparing what a step sends to the worker with what was granted"),
        ("clients", "comparing what clients receive with what was answered"),
        ("chunks", "checking how many tokens each request was given"),
        ("line", "checking who is admitted, left out or preempted"),
        ("ghost", "checking what the worker reads and writes"),
    ],
)
def test_what_a_scheduler_does_wrong_belongs_to_no_operation(detector: str, checked: str) -> None:
    """The story says what was checked, with what was done to the scheduler before its calls to the block manager."""
    divergence = Divergence(3, None, detector, Difference("KV-LIVE-03", "progress", "somebody gets on", "nobody"))
    engine = SCHEDULER.case(FOUND.case.settings, (Submit(Arrive(0, PROMPT)), Step()), Stage(running_max=2))
    found = evolve(FOUND, divergence=divergence, driver=engine)
    lines = tell(found, system="stock", version="0.20.2").splitlines()
    assert f"step 3: {checked}" == lines[1]
    assert f">    3  {checked}" in lines
    start = lines.index("a scheduler: at most 2 requests run at once")
    assert [
        "what was done to it:",
        f"     0  Submit request 0: a prompt of {sum(run.length for run in PROMPT)} tokens, at most 1 answer",
        "     1  Take a step; the model answers token 0",
        "what it asked of its block manager by that:",
        "operations, each with the reference's answer:",
    ] == lines[start + 1 : start + 6]
    assert f"KV-LIVE-03 at step 3: {checked}" == headline(found)


def test_a_scheduler_that_raises_is_reported_as_such() -> None:
    """Its bookkeeping was not checked."""
    divergence = Divergence(3, None, "scheduler", Difference("KV-SYS-01", "KeyError", "an answer", "KeyError: 3"))
    lines = tell(evolve(FOUND, divergence=divergence), system="s", version="v").splitlines()
    assert "step 3: the last thing that was done to the scheduler raises" == lines[1]


def test_where_the_reference_does_not_follow_a_scheduler_nothing_is_made_up() -> None:
    """The report says so instead of an answer."""
    engine = SCHEDULER.case(FOUND.case.settings, (Step(),), Stage())
    found = evolve(FOUND, case=evolve(FOUND.case, operations=(Finish(0),)), driver=engine)
    assert ">    0  Finish request 0 -> the reference does not follow" in tell(found, system="s", version="v")


def test_a_page_is_named() -> None:
    """After the command that shows it again."""
    lines = tell(FOUND, system="s", version="v", reproducer=Path("a.jsonl"), page=Path("out/a\n.html")).splitlines()
    assert r"step by step, in a browser: out/a\n.html" == lines[lines.index("to see it again:") + 2]


def test_a_case_that_may_get_smaller_is_reported_as_such() -> None:
    """With what to do for it."""
    lines = tell(evolve(FOUND, out_of_time=True), system="s", version="v").splitlines()
    expected = "the case may get smaller, there was no more time for it: a larger --profile has more"
    assert expected == lines[-2]
    assert expected not in tell(FOUND, system="s", version="v")


def test_an_operation_that_the_reference_cannot_perform_is_reported_as_such() -> None:
    """Where monitors check alone, the system may stand where the reference does not."""
    found = evolve(FOUND, case=evolve(FOUND.case, operations=(Finish(0),)))
    assert ">    0  Finish request 0 -> not legal here, so not performed" in tell(found, system="s", version="v")


def test_a_declared_difference_names_its_finding() -> None:
    """Next to how often it was seen."""
    story = tell(evolve(FOUND, finding="F-3", times=4), system="s", version="v")
    assert story.endswith("found by lockstep, seen 4 times, declared as F-3")


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[2Jb", "a\u202eb", "a\ud800b", "a\r\x00b"])
def test_what_comes_from_outside_neither_breaks_a_line_nor_steers_the_terminal(hostile: str) -> None:
    """Names, versions, differences and salts."""
    divergence = evolve(FOUND.divergence, difference=Difference("KV-SYS-01", hostile, hostile, hostile))
    arrival = Arrive(0, PROMPT, Keys(salt=hostile, lora=hostile))
    case = evolve(FOUND.case, operations=(arrival,), model=hostile, preset=hostile)
    story = tell(Found(divergence, case, 1, hostile), system=hostile, version=hostile, reproducer=Path("a.jsonl"))
    assert all(line.isprintable() for line in story.splitlines())
    assert len(story.splitlines()) == len(tell(FOUND, system="s", version="v", reproducer=Path("a")).splitlines()) - 2
    story.encode()


def test_a_story_is_bounded() -> None:
    """However long the difference is."""
    divergence = evolve(FOUND.divergence, difference=Difference("KV-SYS-01", *("\n" * 10**6,) * 3))
    story = tell(evolve(FOUND, divergence=divergence), system="s" * 10**6, version="v" * 10**6)
    assert len(story) < 5_000
    assert "more characters)" in story
