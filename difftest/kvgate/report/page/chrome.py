"""A run as trace events, for chrome://tracing and Perfetto: requests as threads, blocks as counters.

A block manager has no clock: the axis counts operations. One of them is a millisecond, which the document says.
The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kvgate.gate.story import describe
from kvgate.kernel.comparison import hit_tokens_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.text import counted, printable
from kvgate.report.page.recording import Frame, Named, Recording, describe_content
from kvgate.report.page.views import answered

OPERATION_US = 1000
"""How long an operation lasts, in the microseconds of the format."""
REQUESTS, SYSTEM, REFERENCE = 1, 2, 3
"""The processes: what happens to the requests, and how the blocks of each side stand."""
OPERATIONS_THREAD = 0

Event = dict[str, Any]


def trace_events(recording: Recording, divergence: Divergence | None, system: str, version: str) -> str:
    """The document, as JSON with a final newline."""
    frames = recording.frames
    events = [*_names(frames), *_operations(frames), *_statuses(frames), *_counters(frames), *_happened(frames)]
    if divergence is not None:
        difference = divergence.difference
        args = {"promises": divergence.sentence, "subject": printable(difference.subject)}
        args |= {"expected": printable(difference.expected), "got": printable(difference.got)}
        events.append(_instant(f"divergence: {difference.statement}", divergence.step, args, scope="g"))
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "axis": "operations: 1 ms is one operation, and no time was measured",
            "system": printable(system),
            "system_version": printable(version),
            "operations": len(recording.operations),
            "operations_left_out": recording.left_out,
        },
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _names(frames: tuple[Frame, ...]) -> Iterator[Event]:
    """What the processes and threads are called, in the order in which they are to be shown."""
    titles = {REQUESTS: "requests", SYSTEM: "blocks of the system", REFERENCE: "blocks of the reference"}
    for process, title in titles.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": title}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    threads = {OPERATIONS_THREAD: "operations"}
    threads |= {number + 1: f"request {number}" for number in sorted({n for frame in frames for n in frame.requests})}
    for thread, name in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": REQUESTS, "tid": thread, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": REQUESTS, "tid": thread, "args": {"sort_index": thread}}


def _slice(name: str, category: str, thread: int, first: int, operations: int, args: Event) -> Event:
    begin, lasts = first * OPERATION_US, operations * OPERATION_US
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": REQUESTS,
        "tid": thread,
        "ts": begin,
        "dur": lasts,
        "args": args,
    }


def _operations(frames: tuple[Frame, ...]) -> Iterator[Event]:
    for frame in frames:
        args = {"operation": printable(describe(frame.operation)), "system": answered(frame.system)}
        if frame.reference is not None:
            args["reference"] = answered(frame.reference)
        yield _slice(type(frame.operation).__name__, "operation", OPERATIONS_THREAD, frame.index, 1, args)


def _statuses(frames: tuple[Frame, ...]) -> Iterator[Event]:
    """A slice for as long as a request stands where it stands."""
    for number in sorted({number for frame in frames for number in frame.requests}):
        known = [(frame.index, frame.requests[number]) for frame in frames if number in frame.requests]
        for (status, preemptions), run in groupby(known, key=lambda pair: (pair[1].status, pair[1].preemptions)):
            stands = list(run)
            first, standing = stands[0]
            name = "preempted" if status.value == "waiting" and preemptions else status.value
            args = {"tokens": standing.tokens, "tokens computed": standing.tokens_computed}
            yield _slice(name, "request", number + 1, first, len(stands), args)


def _counters(frames: tuple[Frame, ...]) -> Iterator[Event]:
    for frame in frames:
        pairs = ((SYSTEM, frame.system), (REFERENCE, frame.reference))
        for process, side in pairs:
            if side is None or side.snapshot is None:
                continue
            snapshot = side.snapshot
            counts = {
                "free": snapshot.blocks_free,
                "held": sum(references > 0 for references in snapshot.references[1:]),
                "cached": sum(content is not None for content in snapshot.contents),
                "pinned": len(snapshot.pinned.blocks),
            }
            for name, count in counts.items():
                yield {
                    "ph": "C",
                    "name": f"{name} blocks",
                    "pid": process,
                    "tid": 0,
                    "ts": frame.index * OPERATION_US,
                    "args": {"blocks": count},
                }


def _happened(frames: tuple[Frame, ...]) -> Iterator[Event]:
    """Hits, and contents that were lost, as instants."""
    before: tuple[Named | None, ...] = ()
    for frame in frames:
        tokens = hit_tokens_of(frame.system.answer)
        if tokens:
            yield _instant(f"hit of {counted(tokens, 'token')}", frame.index, {}, _thread(frame))
        contents = frame.system.contents
        for block, (old, new) in enumerate(zip(before, contents, strict=False)):
            if old is not None and old != new:
                yield _instant(f"block {block} forgets", frame.index, {"held": describe_content(old)}, _thread(frame))
        before = contents or before


def _thread(frame: Frame) -> int:
    request = getattr(frame.operation, "request", None)
    return OPERATIONS_THREAD if request is None else int(request) + 1


def _instant(name: str, index: int, args: Event, thread: int = OPERATIONS_THREAD, scope: str = "t") -> Event:
    return {
        "ph": "i",
        "name": name,
        "cat": "event",
        "pid": REQUESTS,
        "tid": thread,
        "ts": index * OPERATION_US,
        "s": scope,
        "args": args,
    }
