"""How what is missing is installed: from a clone, for kvgate is on no package index.

Whoever asks an index for the name alone gets whatever holds it there.
"""

from __future__ import annotations

CLONE = "PATH-OF-A-CLONE"
"""What stands for it in a command that is shown."""


def from_a_clone(extra: str, folder: str = "") -> str:
    """The command that installs kvgate with ``extra``, or the distribution in ``folder`` of the clone."""
    return f"pip install '{CLONE}{f'/{folder}' if folder else ''}{f'[{extra}]' if extra else ''}'"
