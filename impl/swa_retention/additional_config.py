"""The switches by vLLM's ``--additional-config``: an object under the key ``swa_retention``.

vLLM calls the plug-in before it has a configuration, and in each of its processes. So one function of vLLM is wrapped
even with no switch set: the one that completes a configuration. If the configuration has the key, its switches are put
in the environment, which the processes that vLLM starts inherit, and are installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import wraps
from typing import Any

from swa_retention import config
from swa_retention.config import Configuration, ConfigurationError, read
from swa_retention.unimported import when_imported

SECTION = "swa_retention"
"""The key of the plug-in's object."""
VARIABLE_OF: Mapping[str, str] = {
    "retention_interval": config.RETENTION,
    "masked": config.MASKED,
    "junctions": config.JUNCTIONS,
    "scratch_first": config.SCRATCH_FIRST,
    "pins": config.PIN,
    "pin_min_drop_size": config.PIN_MIN_DROP,
    "partial_hits": config.PARTIAL,
    "partial_hit_min_tokens": config.PARTIAL_MIN,
    "compressed_kv_block_size": config.COMPRESSED,
}
"""The keys of that object, each with the variable that means the same."""

_CONFIGURATIONS = "vllm.config.vllm:VllmConfig"
_MARK = "__swa_retention_additional_config__"


def switches_of(additional_config: object) -> dict[str, str]:
    """What the plug-in's object in ``additional_config`` asks for: variables with their values.

    Raises:
        ConfigurationError: it is not an object, has an unknown key, or a value that the key cannot have.
    """
    section = additional_config.get(SECTION) if isinstance(additional_config, Mapping) else None
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise ConfigurationError(_named(), section, "give an object")
    return {VARIABLE_OF[key]: text for key, text in _checked(section)}


def _checked(section: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Each key with its value, as a variable has it."""
    for key, value in section.items():
        if key not in VARIABLE_OF:
            raise ConfigurationError(_named(key), value, f"unknown key; the keys are {', '.join(VARIABLE_OF)}")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not isinstance(value, (bool, int, str)) or not text.strip():
            raise ConfigurationError(_named(key), value, "give a number, a string, true or false; to unset it, omit it")
        try:
            read({VARIABLE_OF[key]: text})
        except ConfigurationError as error:
            raise ConfigurationError(_named(key), value, error.allowed) from None
        yield key, text


def unset_in(environment: Mapping[str, str], switches: Mapping[str, str]) -> dict[str, str]:
    """The ``switches`` that ``environment`` does not have.

    Raises:
        ConfigurationError: it has one with another meaning.
    """
    for key, variable in VARIABLE_OF.items():
        given, wanted = environment.get(variable, ""), switches.get(variable)
        if wanted is None or not given.strip():
            continue
        if read({variable: given}) != read({variable: wanted}):
            raise ConfigurationError(_named(key), wanted, f"{variable}={given!r} contradicts it; give one of the two")
    return {variable: text for variable, text in switches.items() if not environment.get(variable, "").strip()}


def follow(install: Callable[[Configuration], None], environment: MutableMapping[str, str] = os.environ) -> None:
    """Have every configuration that vLLM completes from now on looked at, and its switches passed to ``install``."""

    def look_at(additional_config: object) -> None:
        unset = unset_in(environment, switches_of(additional_config))
        configuration = read({**environment, **unset})
        if not unset or configuration.is_inert:
            return
        install(configuration)
        # After that, so that a rejected configuration changes nothing.
        environment.update(unset)

    when_imported(_CONFIGURATIONS, lambda: _wrap(look_at))


def _wrap(look_at: Callable[[object], None]) -> None:
    module, _, name = _CONFIGURATIONS.partition(":")
    configurations = getattr(sys.modules[module], name)
    original = configurations.__post_init__
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def complete(self: Any, *arguments: Any, **keywords: Any) -> None:
        # First, for vLLM's platform acts on the configuration in the original.
        look_at(getattr(self, "additional_config", None))
        original(self, *arguments, **keywords)

    setattr(complete, _MARK, original)
    configurations.__post_init__ = complete


def _named(*keys: object) -> str:
    return ".".join(map(str, ("additional_config", SECTION, *keys)))
