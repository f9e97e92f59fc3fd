"""A stored case as a test that imports vLLM and pytest alone: what the adapter called, and what should have come of it.

The calls are recorded while the case runs on the system that diverges: up to there it did what the reference does.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import zip_longest
from typing import Any, cast

from attrs import evolve

from kvgate.adapters.stock import managers_built_by
from kvgate.findings.modelled import without
from kvgate.gate.case_runner import CaseRun, run_case
from kvgate.gate.level import Bench, Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.text import printable
from kvreference.answers import Granted, Hit, Refused, Success
from kvreference.operations import Arrive, Run
from kvreference.snapshot import Snapshot

_READS = ("get_block_ids", "get_blocks", "take_new_block_ids", "new_step_starts")
"""What changes nothing that a test looks at."""
_HEADER = '''"""{about}."""

import pytest
import torch
{imports}

pytestmark = pytest.mark.cpu_test


def make_request(name, tokens, salt=None, lora=None, media=(), reads_cache=True):
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(skip_reading_prefix_cache=not reads_cache),
        pooling_params=None,
        mm_features=[
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=identifier,
                mm_position=PlaceholderRange(offset=offset, length=length),
            )
            for identifier, offset, length in media
        ],
        lora_request=None if lora is None else LoRARequest(lora, 1, f"/lora/{{lora}}"),
        cache_salt=salt,
        block_hasher=get_request_block_hasher({hasher}),
    )


def test_{name}():
    init_none_hash(sha256)
{body}
'''
_IMPORTS = {
    "vllm.lora.request": ["LoRARequest"],
    "vllm.multimodal.inputs": ["MultiModalFeatureSpec", "PlaceholderRange"],
    "vllm.sampling_params": ["SamplingParams"],
    "vllm.utils.hashing": ["sha256"],
    "vllm.v1.core.kv_cache_manager": ["KVCacheManager"],
    "vllm.v1.core.kv_cache_utils": ["get_request_block_hasher", "init_none_hash"],
    "vllm.v1.request": ["Request"],
}


def vllm_test(bench: Bench, case: Case) -> str:
    """The source of a test that fails as long as the block manager does what diverges in this case.

    Raises:
        UsageError: the case does not diverge from the reference, or only in what such a test cannot read.
    """
    if case.level.stage_type is not None:
        raise UsageError("a test for vLLM is written of a block manager alone: of a scheduler, --as-pytest writes one")
    recorded, run, found = _diverging(bench, case)
    if found is None:
        # What is known diverges from the reference without the findings of the release.
        ideal: Any = evolve(cast("Any", bench), factory=without(cast("Any", bench).factory))
        recorded, run, found = _diverging(ideal, case)
    lockstep = case.level.parts(run.world, case)[0].lockstep
    if found is None or lockstep.reference is None:
        raise UsageError("the case does not diverge from the reference here: there is nothing that a test could show")
    for operation in lockstep.performed:
        if isinstance(operation, Arrive):
            recorded.arrivals[lockstep.system.name_of(operation.request)] = operation
    expected, got = lockstep.reference.snapshot(), lockstep.system.snapshot()
    assertions = list(_assertions(recorded, lockstep.answers, expected, got))
    lines = [*recorded.lines(), *assertions]
    for number, line in enumerate(lines):
        name, _, call = line.partition(" = ")
        if name.startswith("got_") and not re.search(rf"\b{name}\b", "\n".join(lines[number + 1 :])):
            lines[number] = call
    ahead = case.settings.geometry.hashed_ahead_tokens
    about = f"{found.sentence} ({found.difference.statement})"
    imports = "\n".join(
        f"from {module} import {', '.join(sorted(set(names)))}" for module, names in sorted(recorded.imports.items())
    )
    return _HEADER.format(
        about=printable(about).replace("\\", "").replace('"', "'"),
        imports=imports,
        hasher=", ".join(map(str, (case.settings.geometry.grain_tokens, "sha256", *([ahead] if ahead else [])))),
        name=f"{found.difference.statement.lower().replace('-', '_')}",
        body=textwrap.indent("\n".join(lines), "    "),
    )


def _diverging(bench: Bench, case: Case) -> tuple[_Recorded, CaseRun, Divergence | None]:
    """What was called in a run, and where it differs from the reference."""
    recorded = _Recorded()
    with recorded.installed():
        run = run_case(bench, case)
    return recorded, run, next((each for each in run.divergences if each.detector == "lockstep"), None)


class _Recorded:
    """The calls of one block manager, as lines of Python."""

    def __init__(self) -> None:
        self.arrivals: dict[str, Arrive] = {}
        self.imports = {module: [*names] for module, names in _IMPORTS.items()}
        self.raised = False
        self.last: str | None = None
        """The variable of what the last call returned."""
        self.found: tuple[str, int] | None = None
        """If the last call was made with a hit, its variable and its tokens."""
        self.gate: str | None = None
        """The same of the last question whether a whole request fits."""
        self._calls: list[tuple[str, ...]] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        """What has a name: ids are of objects that are alive."""
        self._requests: dict[str, dict[str, Any]] = {}
        self._hits: dict[str, str] = {}
        """By request, the variable of what was found for it last."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The block managers that are built meanwhile are recorded."""

        def building(real: Callable[..., Any]) -> Callable[..., Any]:
            def build(*arguments: Any, **named: Any) -> Any:
                given = self._arguments(arguments, named).replace(", max_model_len", ",\n    max_model_len", 1)
                self._calls.append((f"manager = KVCacheManager(\n    {given},\n)",))
                return _Recorder(real(*arguments, **named), self)

            return build

        with managers_built_by(building):
            yield

    def call(self, manager: Any, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call a method of the block manager, and note it."""
        self._name(manager.empty_kv_cache_blocks, "manager.empty_kv_cache_blocks")
        requests = [each for each in (*arguments, *named.values()) if type(each).__name__ == "Request"]
        lines = [line for request in requests for line in self._brought_up(request)]
        number = len(self._calls)
        hit = self._hits.get(requests[0].request_id) if requests and "new_computed_blocks" in named else None
        call = f"manager.{name}({self._arguments(arguments, named)})"
        self.found = self.found if hit is not None else None
        if hit is not None:
            # What was found is passed on, also by a block manager that finds something else.
            tokens, blocks = named["num_new_computed_tokens"], self._spell(named["new_computed_blocks"])
            call = call.replace(f"num_new_computed_tokens={tokens}", f"num_new_computed_tokens={hit}[1]")
            call = call.replace(f"new_computed_blocks={blocks}", f"new_computed_blocks={hit}[0]")
        self.last = f"got_{number}"
        self._calls.append((*lines, f"{self.last} = {call}"))
        try:
            returned = getattr(manager, name)(*arguments, **named)
        except Exception:
            self.raised = True
            raise
        if name == "get_computed_blocks":
            self._hits[requests[0].request_id] = self.last
            self.found = self.last, returned[1]
        elif name == "allocate_slots":
            self._hits.pop(requests[0].request_id, None)
        self.gate = self.last if name == "can_fit_full_sequence" else self.gate
        self._name(returned, self.last)
        if isinstance(returned, tuple):
            for index, each in enumerate(returned):
                self._name(each, f"{self.last}[{index}]")
        return returned

    def end_with_the_hit(self) -> None:
        """What was called after the last look-up, with what it found, means nothing where it finds something else."""
        assert self.found is not None
        self.last, _ = self.found
        while not self._calls[-1][-1].startswith(f"{self.last} = "):
            self._calls.pop()

    def lines(self) -> Iterator[str]:
        """All that was called; requests are made before they are named first."""
        made = set()
        for call in self._calls:
            for line in call:
                for name, arrival in self.arrivals.items():
                    if self._variable(name) in line and name not in made:
                        made.add(name)
                        yield f"{self._variable(name)} = {_request(name, arrival)}"
                yield line

    def _brought_up(self, request: Any) -> Iterator[str]:
        """What the scheduler has changed in a request since the last call."""
        variable, was = self._variable(request.request_id), self._requests.setdefault(request.request_id, {})
        outputs = list(request.output_token_ids)
        if new := outputs[was.get("outputs", 0) :]:
            yield f"{variable}.append_output_token_ids({new})"
        now = {"num_computed_tokens": request.num_computed_tokens, "spec_token_ids": list(request.spec_token_ids)}
        for name, value in now.items():
            if value != was.get(name, type(value)()):
                yield f"{variable}.{name} = {value!r}"
        was.update(now, outputs=len(outputs))

    def _variable(self, request_id: str) -> str:
        return f"request_{request_id.rpartition('-')[2]}"

    def _name(self, value: Any, name: str) -> None:
        if type(value).__name__ == "KVCacheBlocks" and id(value) not in self._names:
            self._names[id(value)] = name
            self._kept.append(value)

    def _arguments(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        return ", ".join((*map(self._spell, arguments), *(f"{key}={self._spell(each)}" for key, each in named.items())))

    def _spell(self, value: Any) -> str:
        if id(value) in self._names:
            return self._names[id(value)]
        kind = type(value)
        if kind.__name__ == "Request":
            return self._variable(value.request_id)
        if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            return "".join(("[", *(f"\n        {self._spell(each)}," for each in value), "\n    ]"))
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self._spell, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if value else "()"
        if isinstance(value, Enum):
            self._import(kind)
            return f"{kind.__name__}.{value.name}"
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return repr(value)
        self._import(kind)
        given = [
            f"{each.name}={self._spell(getattr(value, each.name))}"
            for each in dataclasses.fields(value)
            if each.init and not _is_default(each, getattr(value, each.name))
        ]
        return f"{kind.__name__}({', '.join(given)})"

    def _import(self, kind: type) -> None:
        self.imports.setdefault(kind.__module__, []).append(kind.__name__)


def _is_default(attribute: dataclasses.Field[Any], value: Any) -> bool:
    if attribute.default_factory is not dataclasses.MISSING:
        return bool(value == attribute.default_factory())
    return attribute.default is not dataclasses.MISSING and bool(value == attribute.default)


class _Recorder:
    """Stands for a block manager, and notes what is called."""

    def __init__(self, manager: Any, recorded: _Recorded) -> None:
        self._manager, self._recorded = manager, recorded

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._manager, name)
        if not callable(value) or name.startswith("_") or name in _READS:
            return value
        return lambda *arguments, **named: self._recorded.call(self._manager, name, arguments, named)


def _request(name: str, arrival: Arrive) -> str:
    keys, given = arrival.keys, []
    given += [f"salt={keys.salt!r}"] if keys.salt is not None else []
    given += [f"lora={keys.lora!r}"] if keys.lora is not None else []
    if keys.media:
        given.append(f"media={[(each.identifier, each.offset_tokens, each.length_tokens) for each in keys.media]}")
    given += [] if arrival.reads_cache else ["reads_cache=False"]
    return f"make_request({', '.join((repr(name), _tokens(arrival.prompt), *given))})"


def _tokens(prompt: Sequence[Run]) -> str:
    runs = [f"range({run.first}, {run.first + run.length})" for run in prompt]
    return f"list({runs[0]})" if len(runs) == 1 else f"[{', '.join(f'*{run}' for run in runs)}]"


def _assertions(recorded: _Recorded, answers: tuple[Any, Any], expected: Snapshot, got: Snapshot) -> Iterator[str]:
    """What holds if the block manager does what the reference does, as far as it differs."""
    due, answer = answers
    if recorded.found and isinstance(due, (Granted, Refused)) and recorded.found[1] != due.hit_tokens:
        recorded.end_with_the_hit()
        yield f"assert {recorded.last}[1] == {due.hit_tokens}"
        return
    if recorded.raised:
        # What should have come of the call is what the next lines would say.
        return
    said = False
    if isinstance(due, Hit) and isinstance(answer, Hit) and due != answer:
        yield f"assert {recorded.last}[1] == {due.tokens}"
        yield f"assert {recorded.last}[0].get_block_ids() == {tuple(map(list, due.blocks))!r}"
        said = True
    if isinstance(due, (Granted, Refused)) and type(due) is not type(answer):
        if recorded.gate is not None and any(isinstance(each, Refused) and each.gate for each in answers):
            yield f"assert {recorded.gate} is {isinstance(due, Granted)}"
        else:
            yield f"assert {recorded.last} is {'not None' if isinstance(due, Granted) else 'None'}"
        said = True
    if isinstance(due, Success) and isinstance(answer, Success) and due != answer:
        yield f"assert {recorded.last} is {due.succeeded}"
        said = True
    pool = "manager.block_pool"
    for number in sorted({*expected.tables, *got.tables}):
        table, held = ([list(each) for each in state.tables.get(number, ())] for state in (expected, got))
        if table != held and not said:
            table = table or [[] for _ in held]
            yield f'assert manager.get_block_ids("kvgate-request-{number}") == {tuple(table)!r}'
            said = True
    for block, (mine, other) in enumerate(zip(expected.references, got.references, strict=True)):
        if block and mine != other and not said:
            yield f"assert {pool}.blocks[{block}].ref_cnt == {mine}"
            said = True
    if list(expected.free) != list(got.free) and not said:
        yield f"free = [block.block_id for block in {pool}.free_block_queue.get_all_free_blocks()]"
        pairs = zip_longest(expected.free, got.free)
        first = next(place for place, (due, there) in enumerate(pairs) if due != there)
        yield f"assert free[{first}:{first + 4}] == {list(expected.free)[first : first + 4]}"
        said = True
    if expected.blocks_free != got.blocks_free and not said:
        yield f"assert {pool}.get_num_free_blocks() == {expected.blocks_free}"
        said = True
    for block, (content, identity) in enumerate(zip(expected.contents, got.contents, strict=True)):
        if (content is None) != (identity is None) and not said:
            yield f"assert {pool}.blocks[{block}].block_hash is {'None' if content is None else 'not None'}"
            said = True
    if not said:
        raise UsageError(
            "the case differs in what vLLM's own objects do not show (identities, events or counts): "
            "--as-pytest writes a test of it"
        )
