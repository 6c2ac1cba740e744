from __future__ import annotations

from mesh.config.network import EdgeConfig, LinkConfig, RedisConfig, SelectorConfig


def test_send_buffer_holds_several_of_the_largest_messages() -> None:
    edge = EdgeConfig()
    assert edge.send_buffer_bytes_max >= 4 * max(edge.session_message_bytes_max, edge.node_message_bytes_max)


def test_one_late_beat_is_no_failure() -> None:
    link, selector = LinkConfig(), SelectorConfig()
    assert 3 * link.beat_ms <= link.dead_ms
    assert 3 * selector.presence_ms <= selector.presence_ttl_ms


def test_one_message_holds_the_largest_message_of_a_peer() -> None:
    edge = EdgeConfig()
    assert max(edge.session_message_bytes_max, edge.node_message_bytes_max) < LinkConfig().message_bytes_max


def test_inner_timeout_ends_before_the_outer_one() -> None:
    edge, redis = EdgeConfig(), RedisConfig()
    assert edge.page_timeout_ms < edge.open_timeout_ms
    assert redis.wait_ms < redis.timeout_ms


def test_first_retry_follows_within_the_failure_detection_time() -> None:
    edge, link = EdgeConfig(), LinkConfig()
    assert edge.resend_ms <= link.dead_ms // 2 < edge.resend_ms_max
