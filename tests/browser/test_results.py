"""The order of results in a page: deduplication, acknowledgement, failures, peers."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESULTS = """
  const { ResultOrder } = await import("/session/results.js");
  const order = new ResultOrder();
  order.restart("me");
  const result = (utterance_index, more = {}) => ({
    type: "translation_result", session_id: "me", utterance_index, text_translated: `t${utterance_index}`, ...more,
  });
  const plain = ({ own, peer, ack }) => ({
    own: own.map(({ index, error }) => [index, error?.code ?? "", error?.message ?? ""]),
    peer: peer && peer.index, ack: [ack.session_id, ack.utterance_index],
  });
"""


async def test_duplicate_result_is_acknowledged_and_not_reported(shared_page: Page) -> None:
    body = """
      const seen = [0, 0, 1, 0, 2].map((index) => plain(order.onResult(result(index, { last_seq: index * 10 }))));
      return { seen, last: [order.lastIndex, order.lastSeq] };
    """
    assert await js(shared_page, RESULTS + body) == {
        "seen": [
            {"own": [[0, "", ""]], "peer": None, "ack": ["me", 0]},
            {"own": [], "peer": None, "ack": ["me", 0]},
            {"own": [[1, "", ""]], "peer": None, "ack": ["me", 1]},
            {"own": [], "peer": None, "ack": ["me", 1]},
            {"own": [[2, "", ""]], "peer": None, "ack": ["me", 2]},
        ],
        "last": [2, 20],
    }


async def test_missing_result_has_the_announced_error(shared_page: Page) -> None:
    body = """
      const missing = (utterance_index, reason) => ({ ...result(utterance_index), type: "missing_result", reason });
      const at = (utterance_index) => ({ session_id: "me", utterance_index });
      order.onErrorAnnounced({ type: "ui_event", event: "ERROR", ...at(1), error_code: "NMT_TIMEOUT", hint: "again" });
      order.onErrorAnnounced({ type: "ui_event", event: "ERROR", ...at(2), error_code: "WORSE", hint: "less" });
      order.onErrorAnnounced({ type: "error", code: "NO_AVAILABLE_NODE", message: "none", details: at(2) });
      const foreign = { ...at(0), session_id: "you" };
      order.onErrorAnnounced({ type: "error", code: "OTHER", message: "not mine", details: foreign });
      order.onErrorAnnounced({ type: "error", code: "VAGUE", message: "about nothing" });
      const reasons = ["silence_detected", "job_failed", "job_failed", "gap_timeout"];
      return reasons.map((reason, index) => plain(order.onResult(missing(index, reason))).own).flat();
    """
    assert await js(shared_page, RESULTS + body) == [
        [0, "MISSING_RESULT", "silence_detected"],
        [1, "NMT_TIMEOUT", "again"],
        [2, "NO_AVAILABLE_NODE", "none"],
        [3, "MISSING_RESULT", "gap_timeout"],
    ]


async def test_utterance_ended_may_come_after_a_later_result(shared_page: Page) -> None:
    body = """
      const ended = (utterance_index, last_seq) => ({ session_id: "me", utterance_index, last_seq });
      order.onResult(result(0, { last_seq: 4 }));
      const next = plain(order.onResult(result(3, { last_seq: 30 })));
      const before = [order.lastIndex, order.lastSeq];
      order.onUtteranceEnded(ended(2, 20));
      const between = [order.lastIndex, order.lastSeq];
      order.onUtteranceEnded(ended(1, 10));
      const double = plain(order.onResult(result(3, { last_seq: 30 })));
      return { next, before, between, after: [order.lastIndex, order.lastSeq], double: double.own };
    """
    assert await js(shared_page, RESULTS + body) == {
        "next": {"own": [[3, "", ""]], "peer": None, "ack": ["me", 3]},
        "before": [0, 4],
        "between": [0, 4],
        "after": [3, 30],
        "double": [],
    }


async def test_lost_results_are_failures_before_the_next_result(shared_page: Page) -> None:
    body = """
      order.onResult(result(0));
      order.resume("me", true);
      const seen = plain(order.onResult(result(3)));
      const later = plain(order.onResult(result(4)));
      return [seen.own, later.own, order.lastIndex];
    """
    lost = [[1, "MISSING_RESULT", "lost"], [2, "MISSING_RESULT", "lost"]]
    assert await js(shared_page, RESULTS + body) == [[*lost, [3, "", ""]], [[4, "", ""]], 4]


async def test_indices_continue_in_a_new_session(shared_page: Page) -> None:
    body = """
      order.onResult(result(0));
      order.onResult(result(1));
      order.restart("me again");
      const first = plain(order.onResult(result(0, { session_id: "me again" })));
      return { first, last: order.lastIndex, old: plain(order.onResult(result(2))).own };
    """
    first = {"own": [[2, "", ""]], "peer": None, "ack": ["me again", 0]}
    assert await js(shared_page, RESULTS + body) == {"first": first, "last": 0, "old": []}


async def test_duplicate_result_of_a_peer_is_not_reported(shared_page: Page) -> None:
    body = """
      const received = [["a", 7], ["b", 7], ["a", 8], ["a", 7]];
      return received.map(([session_id, index]) => plain(order.onResult(result(index, { session_id }))));
    """
    assert [(one["peer"], one["ack"]) for one in await js(shared_page, RESULTS + body)] == [
        (7, ["a", 7]),
        (7, ["b", 7]),
        (8, ["a", 8]),
        (None, ["a", 8]),
    ]


async def test_result_order_evicts_beyond_its_bounds(shared_page: Page) -> None:
    """The first index never ends, and there are a thousand peers: the oldest entries are evicted."""
    body = """
      for (let index = 1; index <= 1_000; index += 1) order.onResult(result(index, { last_seq: index }));
      for (let other = 0; other < 1_000; other += 1) order.onResult(result(0, { session_id: `s${other}` }));
      const again = ["s999", "s0"].map((session_id) => plain(order.onResult(result(0, { session_id }))).peer);
      return [order.lastIndex, ...again];
    """
    # A duplicate of the latest peer is recognised; the first peer was evicted, so its result counts as new.
    assert await js(shared_page, RESULTS + body) == [1_000, None, 0]
