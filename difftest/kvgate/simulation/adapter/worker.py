"""A worker that computes nothing: it keeps block tables from vLLM's scheduler output, and reports what it would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import define, frozen

from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.simulation.memory import Work

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput


@frozen
class Admission:
    """A request that came in, or came in again, in this step."""

    number: int
    hit_tokens: int


@define
class Worker:
    """The tables of one engine's worker."""

    tokens_max: int
    lookahead_tokens: int
    """How many slots after the computed tokens draft layers write in a step."""
    tables: dict[int, list[list[int]]]

    def take(self, output: SchedulerOutput) -> tuple[list[Work], list[Admission]]:
        """What a step computes, and which requests were admitted with which hit."""
        for name in output.finished_req_ids:
            self.tables.pop(number_in(name), None)
        admission, starts = self._admitted(output)
        known = output.scheduled_cached_reqs
        columns = (known.req_ids, known.new_block_ids, known.num_computed_tokens)
        for name, blocks, start in zip(*columns, strict=True):
            number = number_in(name)
            starts[number] = start
            if name in known.resumed_req_ids:
                assert blocks is not None, "a resumed request is sent with all its blocks"
                self.tables[number] = [list(group) for group in blocks]
                admission.append(Admission(number, start))
            elif blocks is not None:
                for table, new in zip(self.tables[number], blocks, strict=True):
                    table.extend(new)
        first = {each.number for each in admission}
        return [
            self._work(number, starts[number], output, number in first) for number in self._order(output)
        ], admission

    def _admitted(self, output: SchedulerOutput) -> tuple[list[Admission], dict[int, int]]:
        admission, starts = [], {}
        for data in output.scheduled_new_reqs:
            number = number_in(data.req_id)
            self.tables[number] = [list(group) for group in data.block_ids]
            starts[number] = data.num_computed_tokens
            admission.append(Admission(number, data.num_computed_tokens))
        return admission, starts

    @staticmethod
    def _order(output: SchedulerOutput) -> list[int]:
        return [number_in(name) for name in output.num_scheduled_tokens]

    def _work(self, number: int, start: int, output: SchedulerOutput, first: bool) -> Work:
        name = name_of(number)
        end = start + output.num_scheduled_tokens[name]
        drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        lookahead = 0 if first else self.lookahead_tokens
        return Work(number, self.tables[number], start, end, end - drafts, min(end + lookahead, self.tokens_max))


def drafts_reported(output: SchedulerOutput) -> Mapping[int, int]:
    """Per request, how many drafts the step computes; a token below 0 fills a row, and holds in no case."""
    drafts = output.scheduled_spec_decode_tokens.items()
    return {number_in(name): sum(token >= 0 for token in tokens) for name, tokens in drafts}
