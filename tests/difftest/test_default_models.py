"""The models of a run that names none.

Goal: a long run has more models than a short one, and a level leaves out what it has no cases of. Method: ask.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import DEFAULT_MODELS, FURTHER, Loaded, models_of
from kvgate.adapters.releases import RELEASES
from kvgate.gate.level import LevelChoice
from kvgate.kernel.models import load
from kvgate.levels.registry import default_models, prepare
from kvreference.retention import Sparse

STOCK = Loaded("stock", "0", Reference, DEFAULT_MODELS["stock"], FURTHER)


@pytest.mark.parametrize(("profile", "is_long"), [("precommit", False), ("quick", False), ("ci", True), ("deep", True)])
def test_a_long_run_has_more_models(profile: str, is_long: bool) -> None:
    """Those of the system, and in a long run the further ones."""
    expected = [*DEFAULT_MODELS["stock"], *(FURTHER if is_long else ())]
    assert expected == [model.name for model in default_models(STOCK, profile)]


def test_models_with_an_interval_leave_blocks_out() -> None:
    """An interval that is shorter than the window would retain all of it."""
    names = {name for names in DEFAULT_MODELS.values() for name in names}
    names |= {name for release in RELEASES.values() for name in models_of(release)}
    sparse = [load(name) for name in sorted(names) if "+retention=" in name]
    assert len(sparse) > 2
    for model in sparse:
        interval = model.features.retention_interval_tokens
        assert interval is not None
        retention = Sparse(model.geometry, interval)
        for group in model.geometry.groups:
            due = [retention.due_tokens(group, index, 0) for index in range(60)]
            assert group.is_sparse == (None in due), model.name


@pytest.mark.ci
def test_two_nodes_have_no_models_with_states() -> None:
    """States are not transferred: a run of a pair has the other models, or says that none is left."""
    pytest.importorskip("vllm")
    models = [load("full"), load("mamba-align"), load("swa")]
    (prepared,) = prepare(LevelChoice.PAIR, STOCK, models, "quick")
    assert {"full", "swa"} == {lane.model.name for lane in prepared.plan.lanes}
    (prepared,) = prepare(LevelChoice.PAIR, STOCK, models[1:2], "quick")
    assert {"mamba-align"} == {lane.model.name for lane in prepared.plan.lanes}
