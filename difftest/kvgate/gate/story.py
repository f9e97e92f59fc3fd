"""A divergence as a story: what was promised, what happened, what led there, and how to see it again.

The parts and their order are fixed, so that two stories can be laid next to each other. Text from outside is written on
one line and bounded; the reference's answers are worked out anew from the case.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvgate.adapters.registry import is_built_in
from kvgate.adapters.release_variants import NewReference
from kvgate.findings.modelled import reference_named
from kvgate.gate.level import Case
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.text import consecutive, contrast, counted, printable, quoted, spans
from kvreference.answers import (
    Answer,
    BlockTable,
    Copies,
    Done,
    Granted,
    Happened,
    Hit,
    Refused,
    Shared,
    Statistics,
    Success,
)
from kvreference.block_pool import NULL
from kvreference.content import Keys
from kvreference.events import Event, Removed, Stored
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
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)

OPERATIONS_MAX = 30
"""How many of the operations that led to a divergence are described, the last ones."""
ITEMS_MAX = 6
"""How many events, groups or multimodal items one line lists."""
SUSPECTS_MAX = 3
"""How many functions are named besides the likeliest, and how many other divergences with its cause."""
FOLLOWING_MAX = 6
"""How many of the operations that lead to what follows are described, the last ones."""
LINE_CHARACTERS_MAX = 300
"""How long the line of one operation may be."""
_AT_REST = "every request has ended: checking what remains"
_WITHOUT_OPERATION = {
    "progress": "the scheduler takes a step: checking whether any request makes progress",
    "batch": "comparing what a step sends to the worker with what was granted",
    "connector": "what a connector is sent is compared with what requests have",
    "encoder": "what the encoder computes and keeps is compared with what is needed",
    "statistics": "what is published is compared with what was done",
    "clients": "comparing what clients receive with what was answered",
    "chunks": "checking how many tokens each request was given",
    "line": "checking who is admitted, left out or preempted",
    "scheduler": "the scheduler's books are compared with what was done",
    "ghost": "checking what the worker reads and writes",
    "tiers": "checking what both tiers hold, and which jobs use it",
    "handover": "checking whether the prefill node holds what the decode node is to read",
}
"""What is checked where no single operation is, by what checks."""
_NOT_FOLLOWED = ("not legal here, so not performed", "the reference does not follow")
"""The remark on an operation that the reference cannot perform: in a case, and in what a scheduler asked for."""


def tell(
    found: Found,
    *,
    system: str,
    version: str,
    reproducer: Path | None = None,
    changed: Sequence[str] = (),
    instead: bool = False,
    page: Path | None = None,
    operations_max: int = OPERATIONS_MAX,
) -> str:
    """The whole story, as lines for a terminal.

    The command to paste names ``reproducer``, the trace file, and the options that ``changed`` the system; ``page`` is
    the file that shows it step by step.
    """
    divergence, difference = found.divergence, found.divergence.difference
    ours, theirs = contrast(difference.expected, difference.got)
    return "\n".join(
        (
            *means(found),
            f"{difference.statement}: {divergence.sentence}",
            f"step {divergence.step}: {checked(divergence)}",
            f"expected: {printable(difference.expected)}",
            f"got: {printable(difference.got)}",
            f"smallest difference: {printable(difference.subject)}: {ours} | {theirs}",
            *_follows(found),
            *_also(found),
            *_led_there(found, operations_max, reference_named(system)),
            *_again(found, reproducer, system, changed, instead),
            *(() if page is None else (f"step by step, in a browser: {printable(str(page), 1000)}",)),
            *_circumstances(found, system, version),
        )
    )


def checked(divergence: Divergence) -> str:
    """The operation that diverges; or what is checked, where no single one does."""
    if divergence.operation is not None:
        return _line(divergence.operation)
    if divergence.difference.statement == "KV-SYS-01":
        return "the last thing that was done to the scheduler raises"
    return _WITHOUT_OPERATION.get(divergence.detector, _AT_REST)


def headline(found: Found) -> str:
    """The story in one line: what it means, the guarantee's id, the step and the operation."""
    divergence = found.divergence
    at_rest = divergence.operation is None and divergence.detector not in _WITHOUT_OPERATION
    what = "at rest" if at_rest else checked(divergence)
    means = "" if found.diagnosis is None else f"{found.anomaly.value}, "
    return f"{means}{divergence.difference.statement} at step {divergence.step}: {what}"


def means(found: Found) -> Iterator[str]:
    """What it means, the function that did it, and the others that may have."""
    if found.diagnosis is None:
        return
    yield f"{found.anomaly.value}: {found.anomaly.meaning}"
    if not found.diagnosis.suspects:
        return
    first, *others = found.diagnosis.suspects
    yield f"{'in one of: ' if others else 'in '}{printable(str(first))}"
    if others:
        more = len(others) - SUSPECTS_MAX
        named = [printable(each.function) for each in others[:SUSPECTS_MAX]]
        yield f"or in {', '.join([*named, f'{more} more'] if more > 0 else named)}"


def _follows(found: Found) -> Iterator[str]:
    """What a monitor reports if the run continues."""
    diagnosis = found.diagnosis
    if diagnosis is None or diagnosis.follows is None:
        return
    follows = diagnosis.follows.difference
    yield f"what follows, without the reference: {follows.statement}, found by {diagnosis.follows.detector}"
    for operation in diagnosis.then[-FOLLOWING_MAX:]:
        yield f"  then {printable(found.replayable.level.describe(operation), LINE_CHARACTERS_MAX)}"
    yield f"  {printable(follows.subject)}: expected {printable(follows.expected)}"
    yield f"  got {printable(follows.got)}"


def _also(found: Found) -> Iterator[str]:
    """How the same cause shows besides."""
    for each in found.also[:SUSPECTS_MAX]:
        yield f"also seen: {each.statement}, {printable(each.subject)}, {counted(each.times, 'time')}"
    if len(found.also) > SUSPECTS_MAX:
        yield f"also seen: {len(found.also) - SUSPECTS_MAX} more"


def _led_there(found: Found, operations_max: int, reference: NewReference) -> Iterator[str]:
    """The last operations, each with the reference's answer, the one that diverges marked."""
    operations = found.case.operations
    left_out = max(0, len(operations) - operations_max)
    if operations_max == 0:
        yield f"{counted(left_out, 'operation')} led there"
        return
    yield from _done_to_driver(found, operations_max)
    yield "operations, each with the reference's answer:"
    if left_out:
        yield f"  ... {counted(left_out, 'operation')} before these left out"
    at_rest = found.divergence.operation is None
    for index, (operation, answer) in enumerate(_answered(found.case, reference)):
        if index >= left_out:
            mark = ">" if index == len(operations) - 1 and not at_rest else " "
            reported = _NOT_FOLLOWED[found.driver is not None] if answer is None else describe_answer(answer)
            reported = found.answers[index] if found.answers else reported
            yield f"{mark} {index:4}  {_line(operation)} -> {printable(reported, LINE_CHARACTERS_MAX)}"
    if at_rest:
        yield f"> {len(operations):4}  {checked(found.divergence)}"


def _done_to_driver(found: Found, operations_max: int) -> Iterator[str]:
    """What was done to the scheduler, where there is one; what follows is what it asked of its block manager."""
    driver = found.driver
    if driver is None:
        return
    level = driver.level
    yield f"{level.subject}: {level.describe_stage(driver.stage)}"
    yield f"what was done to {level.subject_again}:"
    left_out = max(0, len(driver.operations) - operations_max)
    if left_out:
        yield f"  ... {counted(left_out, 'operation')} before these left out"
    for index, operation in enumerate(driver.operations[left_out:], start=left_out):
        yield f"  {index:4}  {printable(level.describe(operation), LINE_CHARACTERS_MAX)}"
    yield f"{level.asked_by_that}:"


def _answered(case: Case, reference: NewReference) -> Iterator[tuple[Operation, Answer | None]]:
    """Every operation of the case as the reference resolves it, with its answer; None where it is not legal."""
    manager = reference(case.settings)
    for operation in case.operations:
        resolved = manager.population.resolve(operation)
        yield (operation, None) if resolved is None else (resolved, manager.apply(resolved))


def _again(
    found: Found, reproducer: Path | None, system: str, changed: Sequence[str], instead: bool
) -> tuple[str, ...]:
    if found.again is not None:
        return "to see it again:", f"  {printable(found.again, 1000)}"
    if reproducer is None:
        return ("to see it again: no trace file was written",)
    changed = (*changed, *found.options)
    return "to see it again:", f"  {command_to_replay(reproducer, system, changed, instead=instead)}"


def command_to_replay(reproducer: Path, system: str, changed: Sequence[str], *, instead: bool = False) -> str:
    """What to paste in order to see it again; ``instead`` of the system that the trace names, on another.

    ``changed`` are the options that changed the system.
    """
    # A trace is not trusted to name code of one's own.
    options = ["--sut", system] if instead or not is_built_in(system) else []
    return printable(shlex.join(["kvgate", "replay", str(reproducer), *options, *changed]), 1000)


def _circumstances(found: Found, system: str, version: str) -> Iterator[str]:
    case = found.case
    yield f"model {printable(case.model)}, preset {printable(case.preset)}, seed {case.seed}"
    yield f"system {printable(system)}, version {printable(version)}"
    seen = f"found by {printable(found.divergence.detector)}, seen {counted(found.times, 'time')}"
    if found.out_of_time:
        yield "the case may get smaller, there was no more time for it: a larger --profile has more"
    yield seen if found.finding is None else f"{seen}, declared as {printable(found.finding)}"


def _line(operation: Operation) -> str:
    return printable(describe(operation), LINE_CHARACTERS_MAX)


def describe(operation: Operation) -> str:
    """An operation in words, on one line."""
    match operation:
        case Arrive(request=request):
            return f"Request {request} arrives, {_describe_prompt(operation)}"
        case LookUp(request=request):
            return f"Look up request {request}"
        case Admit(request=request, tokens=tokens, external_tokens=external, loads=loads):
            when = "later" if loads else "now"
            provided = f", up to {counted(external, 'token')} from another node {when}" if external else ""
            return f"Admit request {request}, at most {counted(tokens, 'token')}{provided}"
        case Schedule(request=request, tokens=tokens):
            return f"Schedule request {request}, at most {counted(tokens, 'token')}"
        case Sample(request=request, accepted=accepted, token=token, drafts=drafts, beyond=beyond):
            accepts = f"{counted(accepted, 'draft')} accepted, token {token} sampled"
            accepts += f", {counted(beyond, 'draft')} dropped after its end" if beyond else ""
            return f"Sample for request {request}: {accepts}, {counted(drafts, 'draft')} proposed"
        case Preempt(request=request):
            return f"Preempt request {request}"
        case Finish(request=request, sends=sends):
            return f"Finish request {request}{', while another node still reads it' if sends else ''}"
        case Abort(request=request):
            return f"Abort request {request}"
        case Transferred(request=request, succeeded=succeeded):
            return f"The transfer of request {request} {'is over' if succeeded else 'fails'}"
        case Rewind(request=request, tokens=tokens):
            return f"A load failed: of request {request}, {counted(tokens, 'token')} are valid"
        case Pause(request=request):
            return f"A part of session {request} has ended"
        case Continue(request=request, prompt=prompt, media=media):
            part = counted(sum(run.length for run in prompt), "token") + (
                f" and {counted(len(media), 'item')}" if media else ""
            )
            runs = spans(range(run.first, run.first + run.length) for run in prompt)
            return f"Session {request} continues with {part}: {runs}"
        case ReleaseSkipped(request=request):
            return f"Release the skipped blocks of request {request}"
        case CommonPrefix(request=request):
            return f"Ask for the common prefix of request {request}"
        case Evict(block=block):
            return f"Evict block {block}"
        case Dispatch():
            return "Dispatch the step to the worker"
        case Reset():
            return "Reset the prefix cache"
        case TakeEvents():
            return "Take the events"
        case TakeStatistics():
            return "Take the statistics"


def _describe_prompt(operation: Arrive) -> str:
    tokens = sum(run.length for run in operation.prompt)
    runs = spans(range(run.first, run.first + run.length) for run in operation.prompt)
    reads = () if operation.reads_cache else ("not served from the cache",)
    return "; ".join((f"prompt of {counted(tokens, 'token')}: {runs}", *_describe_keys(operation.keys), *reads))


def _describe_keys(keys: Keys) -> Iterator[str]:
    if keys.salt is not None:
        yield f"salt {quoted(keys.salt)}"
    if keys.adapter is not None:
        yield f"LoRA {quoted(keys.adapter)}"
    for item in keys.media[:ITEMS_MAX]:
        where = spans([range(item.offset_tokens, item.offset_tokens + item.length_tokens)])
        yield f"media {quoted(item.identifier)} at {where}"
    if len(keys.media) > ITEMS_MAX:
        yield f"and {len(keys.media) - ITEMS_MAX} more media"


def _provided(granted: Granted) -> str:
    """What another node provides, if anything."""
    if not granted.external_tokens:
        return ""
    return f", {counted(granted.external_tokens, 'token')} from another node{' later' if granted.loads else ''}"


def describe_answer(answer: Answer) -> str:
    """An answer in words, on one line."""
    match answer:
        case Done():
            return "done"
        case Hit(tokens=tokens, blocks=blocks, partials=partials):
            begun = "".join(f", {counted(p.tokens, 'token')} of block {p.source} in group {p.group}" for p in partials)
            return f"a hit of {counted(tokens, 'token')}, {_describe_blocks(blocks)}{begun}"
        case Granted(hit_tokens=tokens, blocks=blocks):
            return f"granted, a hit of {counted(tokens, 'token')}{_provided(answer)}, new {_describe_blocks(blocks)}"
        case Refused(hit_tokens=tokens, gate=gate):
            why = "the whole request does not fit" if gate else "this step does not fit"
            return f"refused, {why}, a hit of {counted(tokens, 'token')}"
        case Copies(copies=copies):
            reported = (
                f"{counted(c.tokens, 'token')} of {c.source} to {c.destination} in group {c.group}" for c in copies
            )
            return f"copies: {'; '.join(reported) or 'none'}"
        case Success(succeeded=succeeded):
            return "it took effect" if succeeded else "it had no effect"
        case Shared(blocks=counts):
            return f"leading blocks shared, by group: {_some([str(count) for count in counts])}"
        case Happened(events=events):
            return _some([_describe_event(event) for event in events[: ITEMS_MAX + 1]], len(events)) or "no events"
        case Statistics():
            return _describe_statistics(answer)


def _some(words: list[str], number: int | None = None) -> str:
    """The first of ``number`` things in words, and how many more there are."""
    more = (len(words) if number is None else number) - ITEMS_MAX
    return ", ".join([*words[:ITEMS_MAX], f"and {more} more"] if more > 0 else words)


def _describe_blocks(table: BlockTable) -> str:
    return f"blocks by group: {_some([f'[{describe_table(blocks)}]' for blocks in table])}"


def describe_table(blocks: Sequence[int]) -> str:
    """One group's blocks; the null blocks, which stand before all others, are counted."""
    real = spans(consecutive(block for block in blocks if block != NULL))
    nulls = blocks.count(NULL)
    return ", ".join(part for part in (f"{nulls} null" if nulls else "", real) if part)


def _describe_event(event: Event) -> str:
    if isinstance(event, Stored):
        return f"stored {counted(len(event.contents), 'block')} of group {event.group}"
    return "removed 1 block" if isinstance(event, Removed) else "cleared"


def _describe_statistics(answer: Statistics) -> str:
    def reported(requests: int, hits_tokens: int, queries_tokens: int) -> str:
        return f"{counted(requests, 'look-up')} with {hits_tokens} of {counted(queries_tokens, 'token')} hit"

    first = reported(answer.requests, answer.hits_tokens, answer.queries_tokens)
    again = reported(answer.preempted_requests, answer.preempted_hits_tokens, answer.preempted_queries_tokens)
    return f"{first}; preempted: {again}{'; reset' if answer.reset else ''}"
