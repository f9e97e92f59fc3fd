"""How a missing package is installed: from a clone, because kvgate is not on a package index.

A command that names an index would install any package of that name.
"""

from __future__ import annotations

from importlib import import_module

from kvgate.kernel.errors import UsageError

CLONE = "PATH-OF-A-CLONE"
"""Stands for the path of the clone in a printed command."""


def from_a_clone(extra: str, folder: str = "") -> str:
    """The command that installs kvgate with ``extra``, or the distribution in ``folder`` of the clone."""
    return f"pip install '{CLONE}{f'/{folder}' if folder else ''}{f'[{extra}]' if extra else ''}'"


def require(module: str, command: str, extra: str) -> None:
    """Check that an optional package can be imported before the command that needs it starts.

    Raises:
        UsageError: it cannot be imported; the message says which extra installs it.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise UsageError(f"{command} needs {module}, which cannot be imported: {from_a_clone(extra)}") from error
