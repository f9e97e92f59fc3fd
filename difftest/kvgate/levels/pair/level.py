"""The level of two nodes: a scheduler on a prefill node and one on a decode node, and a handover between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from kvgate.findings import explain_pair
from kvgate.gate.generator import Generator
from kvgate.gate.level import Case
from kvgate.gate.shrink import DEFAULT, INSIDE, Rules
from kvgate.kernel.difference import Divergence
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Draw
from kvgate.kernel.trace_lines import BLOCKS_MAX, TOKENS_MAX
from kvgate.levels.pair.operations import (
    OPERATIONS,
    Acknowledged,
    Ask,
    CollectOn,
    Node,
    Operation,
    PairStage,
    ResetCacheOn,
    ResetEncoderOn,
    StepOn,
    describe_pair,
    describe_pair_stage,
)
from kvgate.levels.scheduler.level import (
    ANSWERS_MAX,
    SCHEDULER,
    DrivenLevel,
    draw_replies,
    encodes,
    fits_alone,
    plain_arrival,
    plain_stage,
    recovers,
    shortest_answers,
    with_encoder,
    with_keys,
)
from kvgate.levels.scheduler.operations import GrammarReady, Stage
from kvreference.operations import Abort, Transferred
from kvreference.scheduler.operations import Step
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

STEPS = 200
SIMPLER: Rules = {
    **SCHEDULER.simpler,
    Ask: {"answers_max": 1, "arrival": INSIDE, **dict.fromkeys(("answers_min", "priority", "structured"), DEFAULT)},
    StepOn: {"replies": INSIDE},
    Transferred: {"succeeded": DEFAULT},
    ResetCacheOn: {"preempts": DEFAULT},
    # Without a connector they would be no nodes.
    Stage: {name: rule for name, rule in SCHEDULER.simpler[Stage].items() if name != "connector"},
    PairStage: {"prefill": INSIDE, "decode": INSIDE, "prefill_blocks": 2},
}
LIMITS = {
    **SCHEDULER.limits,
    Ask: dict.fromkeys(("answers_max", "answers_min"), TOKENS_MAX),
    StepOn: SCHEDULER.limits[Step],
    PairStage: {"prefill_blocks": BLOCKS_MAX, "prefill_chunk_tokens": TOKENS_MAX},
}


class PairLevel(DrivenLevel):
    """Two nodes."""

    name = "pair"
    subject = "two nodes"
    subject_again = "them"
    is_divided = True
    asked_by_that = "what the node on which it shows asked of its block manager by that, in its own numbers"
    # No single engine can tell whether the blocks being read are held. Progress and leaks are checked on each node and
    # across both, under the names that they have on one.
    monitors = (*SCHEDULER.monitors, "handover")
    gate = detectors = (*SCHEDULER.gate, "handover")
    alphabet = OPERATIONS
    arrival = Ask
    needed = frozenset((Ask, StepOn, Transferred, Acknowledged))
    # A message that is lost never comes, which is finding 025.
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]] = {
        Ask: lambda generator, case, draw: _ask(generator, case, draw),
        # The decode node takes more steps.
        StepOn: lambda generator, _case, draw: StepOn(
            Node.PREFILL if draw.chance(38) else Node.DECODE, draw_replies(generator, draw)
        ),
        CollectOn: lambda _generator, _case, draw: CollectOn(draw.one_of(tuple(Node))),
        Abort: lambda generator, _case, draw: Abort(generator.request(draw)),
        Transferred: lambda generator, case, draw: Transferred(
            generator.request(draw), generator.succeeds(draw) or not recovers(case.settings)
        ),
        Acknowledged: lambda generator, _case, draw: Acknowledged(generator.request(draw)),
        GrammarReady: lambda generator, _case, draw: GrammarReady(generator.request(draw)),
        ResetCacheOn: lambda _generator, _case, draw: ResetCacheOn(draw.one_of(tuple(Node)), draw.chance(50)),
        ResetEncoderOn: lambda _generator, _case, draw: ResetEncoderOn(draw.one_of(tuple(Node))),
    }
    stage_type = PairStage
    simpler = SIMPLER
    limits = LIMITS
    not_tested = (
        "Pipeline and context parallelism; models that keep states; sessions, which no router divides; pauses, "
        "pooling, embedded prompts, and the options that one scheduler has besides.",
        "Messages that never come: they leave blocks held on both nodes for good (finding 025).",
        "The router and the connector are the gate's own: they do what a connector that reads from the decode node has "
        "to do, and no product's is run.",
        "Where steps are asynchronous, the work that a step costs.",
        "Of newer vLLMs: adapters, items, and least numbers of answers, as on one node.",
    )
    trace_formerly = "kvgate-pair-trace"
    trace_called = "the trace of two nodes"
    unsupported = "the schedulers do not support the settings they were given"

    def world(self, case: Case, subject: str, with_reference: bool) -> Any:
        from kvgate.levels.pair.pair import Pair

        return Pair(case.settings, case.stage, subject, with_reference)

    def takes(self, model: Model) -> bool:
        """Attention alone: no states are handed over. With a connector, hashes cover no token after their block."""
        return not (model.geometry.keeps_states or model.geometry.hashed_ahead_tokens)

    def parts(self, world: Any, case: Case) -> Sequence[Any]:
        del case
        return (world.prefill, world.decode)

    def part_of(self, world: Any, divergence: Divergence | None) -> int:
        """Without a divergence, the decode node."""
        engine = next((seen.engine for seen in world.seen if seen.reported == divergence), world.decode)
        return int(engine is world.decode)

    def explain(self, divergence: Divergence, world: Any) -> str | None:
        return explain_pair(divergence, world)

    # Cases

    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        """A case without operations.

        Known defects of vLLM 0.20.2 are left out, and have cases of their own: requests that could never fit on either
        node (027), messages that never come (025), reads that fail where there are several groups (026); asynchronous
        steps where blocks are freed on the way (028), or drafts come from nowhere.
        """
        del needs
        settings = generator.settings(draw)
        # The prefill node keeps what is read, so it holds more requests than it computes.
        chunk_tokens, least = generator.budget(draw), blocks_to_run(settings, generator.prompt_max)
        prefill, decode = (
            _stage(generator, settings, tokens, draw) for tokens in (chunk_tokens, settings.chunk_tokens)
        )
        if draw.chance(40):
            prefill, decode = (evolve(each, adapters_max=draw.integer(1, 2)) for each in (prefill, decode))
        if draw.chance(40):
            prefill, decode = (with_encoder(each, settings, draw) for each in (prefill, decode))
        stage = PairStage(
            prefill_blocks=1 + least + draw.integer(0, 2 * least),
            prefill_chunk_tokens=chunk_tokens,
            prefill=prefill,
            decode=decode,
        )
        return self.case(settings, (), stage)

    def weights(self, generator: Generator) -> Mapping[type, int]:
        del generator
        return {
            **{Ask: 15, StepOn: 52, Abort: 3, Transferred: 16, Acknowledged: 16, CollectOn: 4},
            **{GrammarReady: 3, ResetCacheOn: 2, ResetEncoderOn: 1},
        }

    def is_possible(self, kind: type, case: Case) -> bool:
        stages = case.stage.prefill, case.stage.decode
        possible: Mapping[type, bool] = {
            CollectOn: any(stage.asynchronous for stage in stages),
            ResetEncoderOn: any(stage.encoder_budget is not None for stage in stages),
        }
        return possible.get(kind, True)

    def operations_in(self, generator: Generator) -> int:
        del generator
        return STEPS

    def allowed(self, bench: Any, case: Case) -> Case:
        """The case without requests that could never run: they block the queue (027).

        On later releases also without what the level of one scheduler leaves out there.
        """
        from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

        if not SUBJECTS[bench.subject].scheduling.in_full:
            # Newer configurations reject a step that has no room for a token and all drafts.
            least = case.settings.drafts_max + 1
            stage = evolve(
                case.stage,
                prefill_chunk_tokens=max(case.stage.prefill_chunk_tokens, least),
                prefill=plain_stage(case.stage.prefill),
                decode=plain_stage(case.stage.decode),
            )
            settings = evolve(case.settings, chunk_tokens=max(case.settings.chunk_tokens, least))
            case = evolve(case, settings=settings, stage=stage, operations=tuple(map(plain, case.operations)))
        return self.that_fits(case)

    def that_fits(self, case: Case) -> Case:
        too_large = [
            each for each in case.operations if isinstance(each, Ask) and not fits(case.settings, case.stage, each)
        ]
        return evolve(case, operations=tuple(each for each in case.operations if each not in too_large))

    # In words, and from outside

    describe = staticmethod(describe_pair)
    describe_stage = staticmethod(describe_pair_stage)

    def prompt_tokens(self, operation: Operation) -> int:
        return operation.prompt_tokens if isinstance(operation, Ask) else 0

    def blocks_of(self, settings: Settings, stage: PairStage) -> int:
        return settings.blocks + stage.prefill_blocks

    def check_stage(self, settings: Settings, stage: PairStage) -> None:
        """The prefill node's settings can be built."""
        stage.of_prefill(settings)


PAIR = PairLevel()


# Generating


def _stage(generator: Generator, settings: Settings, chunk_tokens: int, draw: Draw) -> Stage:
    # As on one node: transfers and asynchronous steps meet where everything computed is kept, and drafts have layers.
    asynchronous = draw.chance(30) and recovers(settings) and (not settings.drafts_max or _drafts_ahead(settings))
    return Stage(
        running_max=min(draw.integer(1, settings.requests_max), chunk_tokens),
        asynchronous=asynchronous,
        by_priority=draw.chance(40),
        connector=True,
        failed_loads_end=draw.chance(30),
        long_prefill_tokens=generator.budget(draw) if draw.chance(20) else None,
    )


def _ask(generator: Generator, case: Case, draw: Draw) -> Ask:
    stage: PairStage = case.stage
    ask = Ask(
        with_keys(generator, stage.prefill, generator.arrival(draw), draw),
        draw.integer(1, ANSWERS_MAX),
        priority=draw.integer(0, 2) if stage.prefill.by_priority or stage.decode.by_priority else 0,
        structured=draw.chance(generator.often("grammars", 10)),
    )
    least = shortest_answers(generator, case.settings, ask.of_decode, draw)
    return evolve(ask, answers_min=least)


def plain(operation: Operation) -> Operation:
    """A request without what only vLLM 0.20.2 was tried with: adapters, items, shortest answers."""
    if not isinstance(operation, Ask):
        return operation
    return evolve(operation, arrival=plain_arrival(operation.arrival), answers_min=0)


def _drafts_ahead(settings: Settings) -> bool:
    """Whether vLLM schedules drafts after tokens that it has not seen."""
    return settings.geometry.has_draft_layer


def fits(settings: Settings, stage: PairStage, ask: Ask) -> bool:
    """Whether a request could run to its end alone on either node: vLLM admits others, which block the queue."""
    on_both = (stage.of_prefill(settings), stage.prefill, ask.of_prefill), (settings, stage.decode, ask.of_decode)
    items = ask.arrival.keys.media
    return all(
        fits_alone(own, serve) and encodes(settings, node, ask.arrival.prompt, items) for own, node, serve in on_both
    )
