"""What a scheduler is configured with, and what can happen to it, as values and in words.

An operation that means nothing when its turn comes is left out, so every part of a list of operations is legal. The
alphabet is that of the reference's scheduler, and more; ``Serve`` is its ``Submit``, and is written so where it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from attrs import field, fields_dict, frozen
from attrs.validators import ge, instance_of, optional

from kvgate.gate.story import describe
from kvgate.kernel.text import counted
from kvreference.geometry import Geometry
from kvreference.operations import Abort, Continue, OfRequest, Transferred
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

_count = [instance_of(int), ge(1)]
_number = [instance_of(int), ge(0)]


class Option(NamedTuple):
    """What an option means, in how many percent of cases it is drawn, and whether an engine can have it."""

    words: str
    percent: int = 8
    needs: Callable[[Geometry, Any], object] = lambda _model, _stage: True


def _option(*choice: Any) -> Any:
    return field(default=False, metadata={"option": Option(*choice)})


@frozen
class Options:
    """How else an engine is configured. Except for the last three, no option changes what is scheduled."""

    without_statistics: bool = _option("no statistics are published", 14)
    without_ends: bool = _option("clients are not sent lists of requests that ended")
    measures_residency: bool = _option("how long blocks are kept and how often they are used is measured")
    second_runner: bool = _option("vLLM's second model runner is used: a request that comes back is sent as new")
    pipeline: bool = _option("the model is spread over pipeline stages; the first is sent the tokens to compute")
    context_parallel: bool = _option(
        "each block is spread over eight ranks, two by four",
        20,
        lambda model, _: [each.keeps_all and each.block_size_tokens % 8 == 0 for each in model.groups] == [True],
    )
    one_group_connector: bool = _option(
        "the connector supports one group", 25, lambda model, stage: stage.connector and len(model.groups) == 1
    )
    # Not drawn with a connector (finding 070). vLLM rejects context parallelism.
    returns_experts: bool = _option(
        "clients are sent which experts were chosen for each token",
        30,
        lambda model, stage: model.groups and not stage.options.context_parallel,
    )
    measures_arithmetic: bool = _option("how much each step computes is measured")
    encoder_connector: bool = _option(
        "other nodes have some of what the encoder computes", 25, lambda _, stage: stage.encoder_budget
    )
    # Whole prompts leave few requests to preempt; and what is computed of a prompt ends at a block of states.
    whole_prompts: bool = _option(
        "a prompt is computed in one step, or not yet", 4, lambda model, _: not model.state_block_tokens
    )
    # A step must have room for an item and a token of one prompt (finding 068).
    whole_items: bool = _option(
        "an item is read in one step, or not yet", 14, lambda _, on: on.encoder_budget and not on.long_prefill_tokens
    )


OPTIONS: Mapping[str, Option] = {name: option.metadata["option"] for name, option in fields_dict(Options).items()}


@frozen
class Stage:
    """What a scheduler is configured with, apart from its block manager."""

    running_max: int = field(default=8, validator=_count)
    """How many requests run at once."""
    asynchronous: bool = False
    """Whether steps are scheduled before the output of the step before is known."""
    in_flight_max: int = field(default=2, validator=_count)
    """How many steps are in flight at most, where they are asynchronous."""
    by_priority: bool = False
    """Whether requests are served by priority, and not in the order in which they came."""
    connector: bool = False
    """Whether other nodes offer, load and read blocks."""
    failed_loads_end: bool = False
    """Whether a request whose load failed ends with an error. If not, what is missing is computed."""
    long_prefill_tokens: int | None = field(default=None, validator=optional(_count))
    """How many tokens of one prompt a step computes at most; None: as many as all together."""
    adapters_max: int | None = field(default=None, validator=optional(_count))
    """Of how many adapters a step computes requests at most; None: requests have no adapters."""
    encoder_budget: int | None = field(default=None, validator=optional(_count))
    """How many tokens of items the encoder computes in a step at most; None: requests have no items."""
    encoder_cache: int = field(default=1, validator=_count)
    """For how many tokens of items what the encoder computed is kept."""
    options: Options = Options()


def impossible(settings: Settings, stage: Stage) -> list[str]:
    """The options that a scheduler with these settings cannot have."""
    return [name for name, option in OPTIONS.items() if not option.needs(settings.geometry, stage)]


@frozen
class Serve(Submit):
    """A request is submitted to an engine. Without a connector no other node offers or reads anything."""

    priority: int = field(default=0, validator=_number)
    """Where an engine serves by priority: the smallest first."""
    structured: bool = False
    """Whether its answer follows a grammar: it waits for ``GrammarReady`` first."""
    grammar_answers: int | None = field(default=None, validator=optional(_number))
    """How many tokens its grammar accepts before it rejects one, which ends the request. None: it accepts all."""
    undecided: int = field(default=0, validator=_number)
    """How often the connector says that it does not know yet what it offers."""
    offered_again: bool = False
    """Whether other nodes offer the same again when it comes back after it was preempted."""
    fails_from_block: int | None = field(default=None, validator=optional(_number))
    """The first load fails after so many blocks after the hit were written. None: it does not fail."""
    pools: bool = False
    """Whether it is answered once, by what its prompt is, and not by tokens."""
    resumable: bool = False
    """Whether it is the first part of a session: when it has ended, it waits for ``Continue`` or ``Close``."""
    answers_min: int = field(default=0, validator=_number)
    """No token stops it before it has so many answers."""
    embedded: bool = False
    """Whether its prompt comes as embeddings, each of which stands for one token that no prompt of tokens has."""


@frozen
class GrammarReady(OfRequest):
    """The grammar of a request is compiled."""


@frozen
class Lost(OfRequest):
    """The other node is gone: the transfer of a request never ends, and no message says so."""


@frozen
class Close(OfRequest):
    """The client of a session sends no further part: it ends with those that it has."""


@frozen
class Collect:
    """The oldest step in flight comes back from the worker, before as many are in flight as may be.

    Only where steps are taken asynchronously. Its replies are those of its ``Step``.
    """


@frozen
class ResetCache:
    """Forget the prefix cache: rejected while blocks are held, unless running requests are preempted for it."""

    preempts: bool = False
    connector: bool = False
    """Whether the connector drops its blocks as well: it does not while a transfer is under way."""


@frozen
class PauseEngine:
    """Admit no request for some steps; then the engine is resumed."""

    running: bool = False
    """Whether those that run compute nothing, either."""
    aborts: bool = False
    """Whether every request is aborted first."""
    steps: int = field(default=1, validator=_count)


@frozen
class ResetEncoder:
    """Forget what the encoder computed, since its weights have changed: items that are still needed are computed
    again."""


Operation: TypeAlias = (
    Submit
    | Serve
    | Continue
    | Close
    | Step
    | Collect
    | Abort
    | Transferred
    | Lost
    | GrammarReady
    | ResetCache
    | ResetEncoder
    | PauseEngine
)

OPERATIONS: tuple[type, ...] = (
    *(Submit, Serve, Continue, Close, Step, Collect, Abort, Transferred, Lost, GrammarReady, ResetCache, ResetEncoder),
    PauseEngine,
)
"""Every kind of operation."""


# In words

REPLIES_SHOWN = 4
"""How many replies of one step are shown."""


def describe_stage(stage: Stage) -> str:
    """What a scheduler is configured with, on one line."""
    parts = [f"at most {counted(stage.running_max, 'request runs', 'requests run')} at once"]
    if stage.asynchronous:
        parts.append(f"steps are asynchronous, at most {stage.in_flight_max} in flight")
    if stage.by_priority:
        parts.append("requests are served by priority")
    if stage.connector:
        parts.append("other nodes offer, load and read blocks")
    if stage.failed_loads_end:
        parts.append("a request whose load failed ends")
    if stage.adapters_max is not None:
        parts.append(f"a step computes requests of at most {counted(stage.adapters_max, 'adapter')}")
    if stage.encoder_budget is not None:
        tokens = counted(stage.encoder_budget, "token")
        parts.append(f"the encoder computes {tokens} of items in a step, and keeps {stage.encoder_cache}")
    if stage.long_prefill_tokens is not None:
        parts.append(f"a step computes at most {counted(stage.long_prefill_tokens, 'token')} of one prompt")
    parts += [option.words for name, option in OPTIONS.items() if getattr(stage.options, name)]
    return "; ".join(parts)


def describe_engine(operation: Operation) -> str:
    """An operation on an engine, on one line."""
    match operation:
        case Submit():
            return f"Submit request {operation.arrival.request}: {asked_of_engine(operation)}"
        case Step(replies=replies):
            replied = "; ".join(map(_reply, replies[:REPLIES_SHOWN]))
            more = f"; and {len(replies) - REPLIES_SHOWN} more" if len(replies) > REPLIES_SHOWN else ""
            return f"Take a step; the model answers {replied}{more}"
        case Collect():
            return "The worker returns the oldest step in flight"
        case Abort() | Transferred() | Continue():
            # The block manager has the same.
            return describe(operation)
        case Close(request=request):
            return f"The client of session {request} sends no further part"
        case Lost(request=request):
            return f"The other node of request {request} is gone: its transfer never ends"
        case GrammarReady(request=request):
            return f"The grammar of request {request} is compiled"
        case ResetCache(preempts=preempts, connector=connector):
            caches = "the prefix cache and the connector's cache" if connector else "the prefix cache"
            return f"Reset {caches}{', preempting running requests' if preempts else ''}"
        case ResetEncoder():
            return "Reset the encoder's cache"
        case PauseEngine(running=running, aborts=aborts, steps=steps):
            first = "Abort all requests, and pause" if aborts else "Pause"
            then = "no request computes" if running else "no request is admitted"
            return f"{first} the engine for {counted(steps, 'step')}: {then}"


def asked_of_engine(submit: Submit) -> str:
    """What a request asks for."""
    return ", ".join(_asked(submit))


def _asked(submit: Submit) -> Iterator[str]:
    yield f"a prompt of {counted(submit.prompt_tokens, 'token')}"
    if submit.arrival.keys.media:
        yield counted(len(submit.arrival.keys.media), "item")
    if submit.arrival.keys.adapter is not None:
        yield f"adapter {submit.arrival.keys.adapter}"
    yield f"at most {counted(submit.answers_max, 'answer')}"
    if submit.external_tokens:
        when = "loaded while it waits" if submit.loads else "loaded within a step"
        yield f"{counted(submit.external_tokens, 'token')} offered by another node, {when}"
    if submit.sends:
        yield "read by another node at its end"
    if isinstance(submit, Serve):
        yield from _more(submit)


def _more(serve: Serve) -> Iterator[str]:
    if serve.priority:
        yield f"priority {serve.priority}"
    if serve.structured:
        rejects = serve.grammar_answers is not None
        then = f", which rejects what follows {counted(serve.grammar_answers or 0, 'token')}" if rejects else ""
        yield f"its answer follows a grammar{then}"
    if serve.undecided:
        yield f"its connector is undecided {counted(serve.undecided, 'time')}"
    if serve.offered_again:
        yield "it is offered the same again after a preemption"
    if serve.pools:
        yield "it is pooled"
    if serve.resumable:
        yield "it is the first part of a session"
    if serve.answers_min:
        yield f"no stop before {counted(serve.answers_min, 'answer')}"
    if serve.embedded:
        yield "its prompt is embedded"
    if serve.fails_from_block is not None:
        yield f"its load fails after {counted(serve.fails_from_block, 'block')}"


def _reply(reply: Reply) -> str:
    accepted = f", {counted(reply.accepted, 'draft')} accepted" if reply.accepted else ""
    drafts = f", {counted(reply.drafts, 'draft')} proposed" if reply.drafts else ""
    return f"token {reply.token}{accepted}{drafts}{', which ends the request' if reply.ends else ''}"
