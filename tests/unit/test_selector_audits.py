from __future__ import annotations

from selector.core.audits import NODES_MAX, Audits


def test_drift_is_what_the_last_audit_of_each_node_found() -> None:
    audits = Audits(remember_ms=1_000)
    audits.note("a", 2, 1, now_ms=0)
    audits.note("b", 0, 1, now_ms=10)
    assert audits.drift(20) == 4
    audits.note("a", 0, 0, now_ms=30)
    assert audits.drift(40) == 1
    assert (audits.leaked_total, audits.missing_total) == (2, 2)


def test_a_node_that_is_not_heard_of_again_is_forgotten() -> None:
    audits = Audits(remember_ms=1_000)
    audits.note("a", 1, 0, now_ms=0)
    audits.note("b", 1, 0, now_ms=500)
    audits.note("a", 1, 0, now_ms=600)
    assert audits.drift(1_550) == 1
    assert audits.drift(1_600) == 0


def test_the_memory_is_bounded() -> None:
    audits = Audits(remember_ms=1_000)
    for number in range(NODES_MAX + 5):
        audits.note(f"n{number}", 1, 0, now_ms=number)
    assert audits.drift(5) == NODES_MAX
