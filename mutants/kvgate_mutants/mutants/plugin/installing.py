"""Mutants of how the plug-in is configured and put in place: no block manager is needed to tell them."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin import checks

_CONFIG = "swa_retention.config"
_REGISTER = "swa_retention.register"


@breaks(f"{_CONFIG}:_number", shown_by=checks.values_that_cannot_be_meant_are_refused)
def negative_numbers_taken(original: Any, variable: str, text: str, *allowed: Any) -> Any:
    """A negative number is taken without its sign."""
    return original(variable, text.lstrip("-"), *allowed)


@breaks(f"{_CONFIG}:_switch", shown_by=checks.values_that_cannot_be_meant_are_refused)
def anything_means_on(_original: Any, environment: Any, variable: str) -> bool:
    """Whatever a switch is set to switches it on."""
    return bool(environment.get(variable))


@breaks(f"{_CONFIG}:_switch", shown_by=checks.values_mean_what_they_say)
def off_means_on(_original: Any, environment: Any, variable: str) -> bool:
    """What people write for no switches on."""
    return variable in environment


@breaks(f"{_CONFIG}:_interval", shown_by=checks.values_mean_what_they_say)
def zero_means_unset(original: Any, text: Any) -> Any:
    """An interval of 0 is taken for none at all."""
    return original(text) or None


@breaks(f"{_REGISTER}:look", shown_by=checks.all_patches_or_none)
def any_source_fits(original: Any, patch: Any) -> Any:
    """A function is replaced whether it is the one that the patch was written for or not."""
    from attrs import evolve

    from swa_retention.register import State

    found = original(patch)
    return evolve(found, state=State.FITS) if found.state is State.DIFFERS else found


@breaks(f"{_REGISTER}:apply", shown_by=checks.all_patches_or_none)
def patches_one_by_one(original: Any, patches: Any, stands_aside: bool = False) -> Any:
    """The patches before the first that does not fit are put in place."""
    return [found for patch in patches for found in original((patch,), stands_aside)]


@breaks(f"{_REGISTER}:_put", shown_by=checks.patches_are_put_in_place_once)
def replaced_and_not_marked(original: Any, patch: Any) -> None:
    """A replacement does not say what it replaced."""
    original(patch)
    module, _, path = patch.target.partition(":")
    from operator import attrgetter
    from sys import modules

    vars(attrgetter(path)(modules[module])).pop("__swa_retention__")


@breaks(f"{_REGISTER}:_rebind", shown_by=checks.whoever_imported_it_has_the_new_one)
def importers_left_behind(_original: Any, _before: Any, _after: Any) -> None:
    """Whoever has imported a function by its name keeps the old one."""


@breaks("swa_retention.plugin:register", shown_by=checks.nothing_is_put_in_place_uninvited)
def put_in_place_uninvited(_original: Any) -> None:
    """The patches are put in place with nothing switched on."""
    from swa_retention import plugin

    # As `register` knows them, which is how the check sees what they do.
    vars(plugin)["install"](vars(plugin)["read"]())


@breaks("swa_retention.features:features_of", shown_by=checks.every_switch_has_its_feature)
def one_feature_at_a_time(original: Any, configuration: Any) -> Any:
    """Of several features that are switched on the first is put in place."""
    return original(configuration)[:1]


@breaks("swa_retention.patches.attach:_attach_retention", shown_by=checks.an_interval_between_boundaries_is_refused)
def interval_rounded_down(original: Any, coordinator: Any, interval: int) -> None:
    """An interval that is no multiple of the alignment is rounded."""
    from swa_retention.patches.attach import alignment_tokens

    original(coordinator, interval - interval % alignment_tokens(coordinator))


@breaks("swa_retention.doctor:examine", shown_by=checks.the_doctor_tells_by_its_exit_code)
def doctor_always_content(original: Any, *arguments: Any) -> Any:
    """The doctor's exit code is always 0."""
    return 0, original(*arguments)[1]
