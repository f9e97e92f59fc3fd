"""The arm ``infinite``: a cache that never evicts, what could hit at best.

Everything is cached, and a hit may end wherever the policy lets one end. The same requests run at once as under any
other arm, so who could hit whom is the same as well. Speculation changes no hit here and is left out.
"""

from __future__ import annotations

from attrs import evolve

from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.policy import DENSE
from kvgate.simulation.ranges.arm import RangesRun
from kvgate.simulation.result import Result
from kvreference.geometry import Geometry, Group

BLOCKS = 1 << 50


def endless(setting: Setting) -> Setting:
    """The same workload, served from a pool without end in which everything is cached."""
    groups = tuple(_cut_at_units(group) for group in setting.settings.geometry.groups)
    serving = evolve(setting.serving, geometry=Geometry(groups), blocks=BLOCKS, drafts_max=0)
    return evolve(setting, serving=serving, policy=DENSE)


def _cut_at_units(group: Group) -> Group:
    """Where a hit may end inside blocks, the blocks are that small: in a pool without end nothing else is different."""
    return evolve(group, block_size_tokens=group.unit, unit_tokens=None) if group.copies else group


class InfiniteArm:
    """A cache that never evicts."""

    name = "infinite"

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        result = RangesRun(endless(setting), self.name).finish(progress)
        return evolve(result, policy=setting.policy.name, blocks=setting.serving.blocks)


def arm() -> InfiniteArm:
    """What ``--arm infinite`` serves with."""
    return InfiniteArm()
