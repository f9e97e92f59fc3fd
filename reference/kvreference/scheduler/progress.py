"""Progress: how long a request waits at most, in steps.

- **KV-LIVE-01** A request that does not fit into the empty pool is rejected when it is submitted. So is one whose
  prompt is too long, and one too many. Any other is admitted within the steps that all requests ahead of it need to
  their ends, and one more.
- **KV-LIVE-02** A running request is answered within the steps that all requests ahead of it need to their ends, plus
  those that its own tokens take to be computed.
- **KV-LIVE-03** Nothing spins: while a request runs or waits, every step advances the first one, unless a transfer
  holds it up. Without other operations, steps never lead back to an earlier state.

A step in which no request gets blocks is *held up*, and not counted. It happens only while a transfer is under way, and
no transfer is begun in it: if each is over within ``T`` steps, one step in ``T + 1`` is counted. Each connector must
end its transfers.

Requests submitted later do not count: they queue after it. Only a loading request is passed by others, so its steps
count from the end of its transfer.

Why: the first running request stays the first until it ends, since it is never preempted. In every step it computes as
many tokens as it may, or is held up. So each request costs at most the steps that it needs by itself.
"""

from __future__ import annotations

from kvreference.population import Request
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.scheduler import Scheduler


def is_held_up(scheduler: Scheduler, observation: Observation) -> bool:
    """Whether a step that was just taken advanced no request because a transfer is under way."""
    return not observation.advanced and bool(scheduler.transfers())


def is_stuck(scheduler: Scheduler, observation: Observation) -> bool:
    """Whether a step that was just taken advanced no request, and there is nothing to wait for: a hang."""
    return not observation.advanced and bool(scheduler.queues.terms) and not scheduler.transfers()


def steps_to_admission(scheduler: Scheduler, number: int) -> int:
    """The most steps, held-up ones apart, after which a request that waits for no transfer is admitted."""
    return _steps_ahead(scheduler, number) + 1


def steps_to_answer(scheduler: Scheduler, number: int) -> int:
    """The most steps, held-up ones apart, after which a request that waits for no transfer has one answer more."""
    request = scheduler.manager.population[number]
    return _steps_ahead(scheduler, number) + _steps_to_compute(scheduler, request)


def steps_to_end(scheduler: Scheduler, number: int) -> int:
    """The most steps, held-up ones apart, after which a request that waits for no transfer has ended."""
    return _steps_ahead(scheduler, number) + _steps_alone(scheduler, number)


def _steps_ahead(scheduler: Scheduler, number: int) -> int:
    return sum(_steps_alone(scheduler, other) for other in scheduler.queues.ahead_of(number))


def _steps_alone(scheduler: Scheduler, number: int) -> int:
    """How many steps a request needs to its end if it is first: to begin a load, to compute, one per answer."""
    terms = scheduler.queues.terms[number]
    request = scheduler.manager.population[number]
    answers_left = terms.limit_tokens - len(request.tokens)
    return terms.parks + _steps_to_compute(scheduler, request) + answers_left - 1


def _steps_to_compute(scheduler: Scheduler, request: Request) -> int:
    """How many steps the tokens of a request take, each as many as it may; where states are kept, chunks end there too.

    Only what the first that runs has computed will not be lost.
    """
    computed = request.tokens_computed if scheduler.queues.running[:1] == [request.number] else 0
    chunk = min(scheduler.settings.chunk_tokens, scheduler.limits.budget_tokens)
    steps = -(-(len(request.tokens) - computed) // chunk)
    block = scheduler.settings.geometry.state_block_tokens
    if block is None:
        return steps
    limit_tokens = scheduler.queues.terms[request.number].limit_tokens
    return steps + limit_tokens // block - computed // block
