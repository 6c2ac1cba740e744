from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from lua.engine.slots import SlotMap, slot_of
from mesh.keys import Keys


@given(st.text(alphabet="ab{}c:", max_size=20))
def test_slots_are_those_of_redis(key: str) -> None:
    assert slot_of(key) == key_slot(key.encode())


def test_all_keys_of_a_cell_share_a_slot() -> None:
    keys = Keys()
    for cell in range(100):
        names = [
            keys.node(cell, "n"),
            keys.leases(cell, "n"),
            keys.ledger(cell),
            keys.job(cell, "j"),
            keys.pool(cell, "p"),
        ]
        assert len({slot_of(name) for name in names}) == 1


def test_the_map_takes_over_a_reply_and_moves() -> None:
    slots = SlotMap()
    assert slots.owner(0) is None and slots.owners() == []
    slots.replace(
        [[0, 99, [b"10.0.0.1", 1, b"id", []], [b"10.0.0.9", 9, b"replica"]], [100, 16383, [b"", 2, b"id"]]], "seed"
    )
    assert (slots.owner(99), slots.owner(100)) == (("10.0.0.1", 1), ("seed", 2))
    slots.on_moved(99, ("seed", 2))
    assert slots.owner(99) == ("seed", 2) and slots.owner(98) == ("10.0.0.1", 1)
    assert slots.owners() == [("10.0.0.1", 1), ("seed", 2)]
    slots.replace([[0, 5, [None, 3, b"id"]]], "seed")
    assert slots.owner(5) == ("seed", 3) and slots.owner(6) is None
