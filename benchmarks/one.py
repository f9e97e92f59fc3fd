"""One benchmark in a process of its own: a line of JSON for each row, as soon as it is measured.

What a benchmark prefers to print, and what vLLM logs, goes to standard error: standard output holds rows and nothing
else. `python -m benchmarks` starts this.

    python -m benchmarks.one NAME [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from attrs import asdict
from benchmarks.registry import chosen


def main() -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    (benchmark,) = chosen([arguments.name])
    interrupted: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        with suppress(KeyboardInterrupt):
            for row in benchmark.load()(arguments.quick):
                # A search that is interrupted ends early and raises nothing: its row would be wrong.
                if interrupted:
                    break
                print(json.dumps(asdict(row)), file=out, flush=True)
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
