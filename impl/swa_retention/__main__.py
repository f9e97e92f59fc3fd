"""``python -m swa_retention doctor``: what the plug-in would do here."""

from __future__ import annotations

import argparse
import os
import sys

from swa_retention.doctor import examine


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m swa_retention", description="The plug-in swa_retention for vLLM.")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="say what is patched, what is native, what is rejected, and what the environment asks for",
        description="Exit 0 if everything that is switched on fits, 1 if something is rejected, 2 if a variable or key "
        "has a value that it cannot have, 3 without vLLM.",
    )
    doctor.add_argument(
        "--additional-config",
        metavar="JSON",
        help="what vLLM is started with by its option of this name: its object swa_retention is checked too",
    )
    arguments = parser.parse_args()
    # What vLLM logs while it is imported goes to the standard output too.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    code, lines = examine(additional_config=arguments.additional_config)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
