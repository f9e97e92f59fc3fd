"""``python -m kvgate.live``: a thousand requests with a shadow attached to real engines, and injected faults."""

from __future__ import annotations

from kvgate.kernel.interruption import starting

with starting("kvgate.live"):
    import sys
    import tempfile
    from pathlib import Path
    from typing import TYPE_CHECKING, Annotated

    import typer

    from kvgate.kernel.errors import SystemUnavailableError, UsageError
    from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED

    if TYPE_CHECKING:
        from kvgate.live.shadowed import Outcome


def shadowed(
    count: Annotated[int, typer.Option("--requests", min=3, max=100_000, help="How many, over all models.")] = 1000,
) -> None:
    """Serve requests with shared prefixes on tiny models on this machine's CPU, with a shadow in check.

    Then three faults are injected into the engine. Two recordings, one without the fault and one with it, show its
    first wrong step. The shadow must report it in that step, and the engine must answer every request.

    Exit 0 if the shadow saw no difference without a fault, and each fault in time; 1 if not.

    Example:

      python -m kvgate.live --requests 1000
    """
    from kvgate.adapters.cpu_engine.engines import engines
    from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
    from kvgate.kernel.progress import progress_line
    from kvgate.live.shadowed import run

    with progress_line() as line, tempfile.TemporaryDirectory(prefix="kvgate-shadowed-") as folder:
        line.say("importing vLLM …")
        try:
            with engines() as started:
                outcome = run(started, tuple(HYBRIDS), count, Path(folder), line.say)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    _print(outcome)
    raise typer.Exit(AGREEMENT if outcome.is_as_it_should_be else DIVERGENCE)


def _print(outcome: Outcome) -> None:
    for each in outcome.watched:
        status = each.status
        declared = f", declared {status.declared}" if status.declared else ""
        unjudged = f", not checked {status.unjudged}" if status.unjudged else ""
        typer.echo(
            f"{each.model}: {len(each.result.answers)} of {each.requests} requests answered, "
            f"{each.result.cached_tokens} tokens cached, {each.result.preemptions} preemptions; "
            f"shadow: {status.judged} calls checked in {status.steps} steps, "
            f"{status.differences} differences, {status.lost} lost{declared}{unjudged}"
        )
    for fault in outcome.reported:
        verdict = "in time" if fault.is_in_time else "NOT IN TIME"
        typer.echo(
            f"injected {fault.name} on {fault.model}: wrong first in step {fault.first_wrong_step}, reported in step "
            f"{fault.reported_step}: {verdict}; {fault.answered} of {fault.requests} answered. {fault.headline}"
        )


if __name__ == "__main__":
    try:
        typer.run(shadowed)
    except (UsageError, SystemUnavailableError) as error:
        print(f"kvgate.live: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 3)
