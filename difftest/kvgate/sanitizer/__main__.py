"""``python -m kvgate.sanitizer SCRIPT [ARGUMENT ...]``: run a script under the sanitizer.

Scripts that start an engine need only ``KVGATE_SANITIZE=1``: vLLM loads the sanitizer as one of its plug-ins. This is
for scripts that use the block manager without an engine.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from kvgate.sanitizer import VARIABLE
from kvgate.sanitizer.plugin import installed, register


def main() -> None:
    """Run the script that the command line names, as ``__main__``."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m kvgate.sanitizer SCRIPT [ARGUMENT ...]")
    os.environ.setdefault(VARIABLE, "1")
    register()
    if not installed:
        raise SystemExit("the kvgate sanitizer is off: vLLM's log says why")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
