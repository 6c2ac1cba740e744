"""Checks on delivery: order, duplicates, and audio that is covered once."""

from __future__ import annotations

from loadtest.delivery import IndexOrder, Metric, SentAudio, describe_audio


def ends(order: IndexOrder, *indices: int) -> list[Metric | None]:
    return [order.end(index) for index in indices]


def test_indices_end_in_order_each_once() -> None:
    assert ends(IndexOrder(), 0, 1, 2) == [None, None, None]
    assert ends(IndexOrder(), 0, 0, 1) == [None, Metric.DUPLICATE, None]
    assert ends(IndexOrder(), 0, 2, 1, 3) == [None, Metric.ORDER, Metric.DUPLICATE, None]
    assert ends(IndexOrder(), 1) == [Metric.ORDER]


def test_a_receiver_that_joined_later_begins_anywhere() -> None:
    assert ends(IndexOrder(first=None), 7, 8, 8) == [None, None, Metric.DUPLICATE]


def test_an_index_that_ended_with_an_error_is_no_gap_and_its_missing_result_no_duplicate() -> None:
    order = IndexOrder()
    order.fail(0)
    assert ends(order, 1, 2) == [None, None]
    order.fail(3)
    assert ends(order, 3, 4, 4) == [None, None, Metric.DUPLICATE]


def test_results_cover_the_audio_in_order() -> None:
    sent = SentAudio()
    sent.add(b"aabb")
    sent.add(b"cc")
    assert sent.cover(describe_audio(b"aab")) == ""
    assert sent.cover(describe_audio(b"bcc")) == ""
    sent.add(b"dd")
    assert sent.cover(describe_audio(b"ee")) == "2 bytes with another checksum"
    assert sent.cover(describe_audio(b"ff")) == "2 bytes were heard where 0 were sent"


def test_results_of_other_nodes_are_not_compared() -> None:
    sent = SentAudio()
    sent.add(b"aa")
    assert sent.cover("hello") == ""
    sent.add(b"bb")
    assert sent.cover(describe_audio(b"bb")) == ""
