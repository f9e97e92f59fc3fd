"""``kvgate fetch``: published releases into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat


def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="native@VERSION, native for the newest, vllm-ascend, or lmcache@0.5.6.",
            show_default=False,
        ),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Say what there is, and which of it is here; fetch nothing.")
    ] = False,
    output: Annotated[
        TableFormat, typer.Option("--format", help="What --list prints to standard output.")
    ] = TableFormat.TEXT,
) -> None:
    """Fetch published releases from the package registry, to be systems under test.

    They are unpacked into a cache and never installed: what is in the environment stays as it is. A wheel whose bytes
    differ from the published ones is rejected. KVGATE_CACHE names another folder than ~/.cache/kvgate.

    Exit 0 if all that was named is there, 3 if something cannot be fetched or kept.

    Examples:

      kvgate fetch native@0.23.0 native@0.22.1

      kvgate fetch vllm-ascend lmcache@0.5.6

      kvgate fetch --list
    """
    from kvgate.adapters import fetching
    from kvgate.adapters.releases import FETCHED, release_named
    from kvgate.kernel.progress import progress_line

    if list_only:
        _list(output)
        return
    if not names:
        raise UsageError("nothing to fetch: name a release, or see kvgate fetch --list")
    wanted = [FETCHED.get(name) or release_named(name) for name in names]
    for release in wanted:
        was_here = fetching.is_fetched(release)
        with progress_line() as line:
            line.say(f"{release.name} …")
            folder = fetching.fetch(release, line.say)
        typer.echo(f"{release.name} {'was' if was_here else 'is'} in {folder}")


def _list(output: TableFormat) -> None:
    from kvgate.adapters.fetching import cache, folder_of, is_fetched
    from kvgate.adapters.releases import FETCHED
    from kvgate.report.document import Report, Section, columns
    from kvgate.report.formats import echo

    rows = tuple((each.name, each.distribution, is_fetched(each), str(folder_of(each))) for each in FETCHED.values())
    section = Section(f"in {cache()}:", columns("name", "distribution", "fetched", "folder"), rows)
    echo(Report("fetch --list", tested=(section,)), output)
