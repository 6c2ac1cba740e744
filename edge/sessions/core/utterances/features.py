"""Features: the needs of a job's pipeline and optional features. Pure; the table comes from the configuration.

A module may need other modules, which may need others: what is required is the sum of all of them. A table that names
an unknown module or runs in a circle is a mistake of the configuration, found by `check_modules` at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mesh.config.scheduler import Module
from mesh.errors import ConfigError

#: Which flag of the pipeline needs which service of a node; also the order in which services are named.
SERVICE_OF_FLAG: Final = {
    "use_asr": "asr",
    "use_nmt": "nmt",
    "use_tts": "tts",
    "use_semantic": "semantic",
    "use_tone": "tone",
}
_PLACE: Final = {service: place for place, service in enumerate(SERVICE_OF_FLAG.values())}


class Needs(NamedTuple):
    """Services and models that a node must have."""

    services: list[str]
    models: list[str]


def required(pipeline: Mapping[str, bool], features: Mapping[str, bool], table: Mapping[str, Module]) -> Needs:
    """The services and models of the pipeline's stages and of every feature that is on, each named once.

    A feature without an entry in the table needs nothing beyond the pipeline.
    """
    stages = [service for flag, service in SERVICE_OF_FLAG.items() if pipeline.get(flag)]
    names = [name for name, on in features.items() if on and name in table]
    if not names:
        return Needs(stages, [])
    modules = closure(names, table)
    services = {*stages, *(service for module in modules for service in module.services)}
    return Needs(sorted(services, key=_by_place), sorted({model for module in modules for model in module.models}))


def closure(names: Iterable[str], table: Mapping[str, Module]) -> list[Module]:
    """The modules of that name and all that they need, each once."""
    found: dict[str, Module] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found[name] = table[name]
            left += table[name].modules
    return list(found.values())


def check_modules(table: Mapping[str, Module]) -> None:
    """ConfigError if a module needs one that is not in the table, or itself by way of others."""
    for name, module in table.items():
        for needed in module.modules:
            if needed not in table:
                raise ConfigError(f"modules.table.{name}: needs the module {needed!r}, which is not in the table")
    for name in table:
        circle = _circle_from(name, table)
        if circle:
            raise ConfigError(f"modules.table.{name}: needs itself: {' -> '.join(circle)}")


def _circle_from(start: str, table: Mapping[str, Module]) -> list[str]:
    """The way from a module back to itself, or nothing."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for needed in table[way[-1]].modules:
            if needed == start:
                return [*way, start]
            if needed not in seen:
                seen.add(needed)
                ways.append([*way, needed])
    return []


def _by_place(service: str) -> tuple[int, str]:
    return _PLACE.get(service, len(_PLACE)), service
