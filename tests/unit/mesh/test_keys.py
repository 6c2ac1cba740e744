from __future__ import annotations

import inspect
from typing import Any

import pytest

from lua.engine.slots import slot_of
from mesh.keys import Keys, lease_member

KEYS = Keys("mesh-1")
VALUES: dict[str, Any] = {"cell": 7, "kind": "edge"}
IN_A_CELL = [name for name, make in inspect.getmembers(Keys, inspect.isfunction) if "cell" in make.__annotations__]


def made(name: str, **changes: Any) -> str:
    """The key of that name, with the same id in every argument."""
    method = getattr(KEYS, name)
    arguments = {one: {**VALUES, **changes}.get(one, "x-1") for one in inspect.signature(method).parameters}
    key: str = method(**arguments)
    return key


ALL = [name for name, _ in inspect.getmembers(Keys, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", ALL)
def test_key_begins_with_the_prefix(name: str) -> None:
    assert made(name).startswith("mesh-1:")


def test_no_two_kinds_of_keys_collide() -> None:
    keys = [made(name) for name in ALL]
    assert len(set(keys)) == len(keys)


def test_keys_of_one_cell_share_a_hash_slot() -> None:
    names = [name for name in IN_A_CELL if not name.startswith("_")]
    assert len(names) > 15
    assert len({slot_of(made(name)) for name in names}) == 1
    assert slot_of(made("node", cell=7)) != slot_of(made("node", cell=8))


def test_presence_of_all_processes_shares_a_hash_slot() -> None:
    assert slot_of(KEYS.present()) == slot_of(KEYS.presence("edge", "a")) == slot_of(KEYS.presence("selector", "b"))


def test_lease_names_job_and_attempt() -> None:
    assert lease_member("job-07-a", 2) == "job-07-a#2"
