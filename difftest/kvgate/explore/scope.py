"""A scope: how small a world is. What was not explored lies beyond, so a scope can say its bounds in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from kvgate.explore.menu import Menu
from kvgate.kernel.text import counted
from kvreference.geometry import Group
from kvreference.settings import Settings


@frozen
class Scope:
    """Settings, and the operations that are tried in them."""

    settings: Settings
    menu: Menu

    @property
    def bounds(self) -> Mapping[str, str]:
        """The bounds by what they bound."""
        settings, menu = self.settings, self.menu
        families = "1 family" if menu.families == 1 else f"{menu.families} families"
        return {
            "groups": "; ".join(map(_group, settings.geometry.groups)),
            "pool": f"{counted(settings.blocks - 1, 'block')} and the null block",
            "requests": f"at most {settings.requests_max} at once, of at most {counted(settings.tokens_max, 'token')}",
            "prompts": f"of {_listed(menu.prompts)} tokens; {families}",
            "steps": f"of at most {_listed(min(each, settings.chunk_tokens) for each in menu.budgets_tokens)} tokens",
            "answers": _answers(menu),
            "operations": ", ".join(_operations(menu)),
            "switches": ", ".join(_switches(settings)) or "as they are by default",
        }


def _listed(things: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(map(str, things)))


def _group(group: Group) -> str:
    window = "" if group.window_tokens is None else f" of {group.window_tokens}"
    flags = "".join(
        (
            "" if group.compress_ratio == 1 else f", {group.compress_ratio} tokens a slot",
            f", hits at multiples of {group.unit}" if group.copies else "",
            "" if group.states is None else f", states {group.states.value}",
            ", look-ahead" if group.lookahead else "",
        )
    )
    return f"{group.kind.value.replace('_', ' ')}{window}, blocks of {counted(group.block_size_tokens, 'token')}{flags}"


def _answers(menu: Menu) -> str:
    if not menu.samples:
        return "none"
    drafts = "" if menu.drafts == (0,) else f", {_listed(menu.drafts)} drafts proposed, any number of them accepted"
    return f"{menu.tracks} at each position{drafts}"


def _operations(menu: Menu) -> list[str]:
    """The operations on the menu by name."""
    tried = {
        "admit": True,
        "schedule": True,
        "sample": menu.samples,
        "finish": True,
        "preempt": menu.preempts,
        "abort": menu.aborts,
        "release skipped": menu.releases,
        "evict": menu.evicts,
        "reset": menu.resets,
        "dispatch": menu.dispatches,
        "load": menu.loads,
        "send": menu.sends,
        "look up": menu.asks,
        "common prefix": menu.asks,
    }
    external = [f"{_listed(menu.external_tokens)} external tokens"] if menu.external_tokens != (0,) else []
    return [name for name, is_tried in tried.items() if is_tried] + external


def _switches(settings: Settings) -> list[str]:
    """The settings that are not as they are by default."""
    interval_tokens, drop_blocks = settings.retention_interval_tokens, settings.pin_drop_blocks_min
    turned = {
        "no prefix caching": not settings.caches,
        "only the first chunk must fit": not settings.full_sequence_must_fit,
        f"retention interval {interval_tokens}": interval_tokens is not None,
        "scratch first": settings.scratch_first,
        f"drops of {drop_blocks} blocks pinned": drop_blocks is not None,
    }
    return [name for name, is_turned in turned.items() if is_turned]
