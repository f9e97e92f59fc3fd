"""``python -m kvgate.adapters.cpu_engine``: ``vllm serve`` with a tiny model on this machine's CPU, until Ctrl-C."""

from __future__ import annotations

from kvgate.kernel.interruption import starting

with starting("kvgate.adapters.cpu_engine"):
    import os
    import signal
    import sys
    from pathlib import Path
    from types import FrameType
    from typing import Annotated

    import typer

    from kvgate.kernel.errors import SystemUnavailableError, UsageError
    from kvgate.kernel.output import INTERRUPTED


def serve(
    model: Annotated[str, typer.Argument(help="gemma-3, gemma-4 or gpt-oss, in small.")] = "gemma-3",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where it listens.")] = 8000,
    mutants: Annotated[list[str] | None, typer.Option("--mutant", metavar="NAME", help="Inject this fault.")] = None,
    preloads: Annotated[
        list[Path] | None, typer.Option("--preload", metavar="FILE.py", help="Run this file in every process.")
    ] = None,
) -> None:
    """Serve a tiny hybrid model with random weights, as ``vllm serve`` does, to try kvgate's live checks on.

    Variables that begin with KVGATE_SHADOW or VLLM_ are handed on: the shadow's, and those of the plug-in.

    Examples:

      KVGATE_SHADOW=check python -m kvgate.adapters.cpu_engine gemma-3

      python -m kvgate.adapters.cpu_engine gemma-4 --mutant last-token-ignored
    """
    from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
    from kvgate.adapters.cpu_engine.serving import Serving, served
    from kvgate.kernel.progress import progress_line

    if model not in HYBRIDS:
        raise UsageError(f"no model is called {model!r}; there are {', '.join(HYBRIDS)}")
    handed = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
    serving = Serving(model, handed, mutants=tuple(mutants or ()), preloads=tuple(preloads or ()), port=port)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A request to end this process ends the server too.
        # One that is ignored, as under nohup, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        with progress_line() as line, served(serving, line.say) as server:
            line.stop()
            typer.echo(f"{model} is served at {server.url}; Ctrl-C ends it. Its log: {server.folder / 'log'}")
            if server.shadow is not None:
                typer.echo(f"Its shadow writes to {server.shadow}")
            code = server.process.wait()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise SystemUnavailableError(f"vllm serve ended with {code}")


def _end(number: int, _frame: FrameType | None) -> None:
    # The server is ended on the way out: no second signal cuts that short.
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        typer.run(serve)
    except (UsageError, SystemUnavailableError) as error:
        print(f"kvgate.adapters.cpu_engine: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 3)
