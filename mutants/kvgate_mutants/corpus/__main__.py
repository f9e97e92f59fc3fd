"""One system of the corpus in a process of its own: ``python -m kvgate_mutants.corpus SYSTEM SECONDS BUG:TRIAL…``.

A process has one vLLM for good, and some systems change it. Each result is a line on standard output, as soon as it is
there. Cases are drawn for so many seconds a trial. It ends with 3 if the system cannot be had, as ``kvgate`` does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kvgate.adapters.registry import Loaded, load_system
from kvgate.gate.fault import fault_of
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.text import printable
from kvgate_mutants.corpus.passing import written
from kvgate_mutants.corpus.probe import Load, Result, State, attempt
from kvgate_mutants.corpus.register import BUGS


def main(arguments: Sequence[str]) -> int:
    """Load the system and run the trials; the exit code."""
    system, seconds, *places = arguments
    loaded: dict[str, Loaded] = {}

    def load(name: str) -> Loaded:
        if name not in loaded:
            loaded[name] = load_system(name)
        return loaded[name]

    try:
        load(system)
        for place in places:
            bug, _, trial = place.partition(":")
            print(written(_attempt(bug, int(trial), load, float(seconds))), flush=True)
    except (SystemUnavailableError, UsageError) as error:
        print(f"kvgate: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


def _attempt(bug: str, trial: int, load: Load, seconds: float) -> Result:
    """One trial. If the gate itself raises, the others are run all the same."""
    try:
        return attempt(BUGS[bug], trial, load, seconds)
    except (SystemUnavailableError, UsageError):
        raise
    except Exception as error:
        fault = fault_of(error)
        says = printable(f"{fault.raised}, {fault.doing}")
        return Result(bug, trial, State.FAULT, BUGS[bug].trials[trial].code, says=says)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
