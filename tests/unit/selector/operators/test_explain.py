from __future__ import annotations

import json
from typing import Any

import pytest

from selector.operators.core.explain import Candidate, Decision, Round, record_of, words_of

SEVEN = Candidate("node-7", 412, {"work": 360.0, "busy": 40.0, "load": 12.0, "stale": 0.0}, 1, "taken", 1)
THREE = Candidate("node-3", 447, {"work": 360.0, "busy": 80.0, "load": 7.0, "stale": 0.0}, 2)
ROUND = Round(2, "", {"lang_pair_unsupported": 2, "capacity_exceeded": 1}, [SEVEN, THREE])
DECISION = Decision(
    request_id="r-1",
    attempt=1,
    session_id="s-1",
    trace_id="t-1",
    at_ms=5,
    outcome="new",
    job_id="job-00-x",
    node_id="node-7",
    pair="en>es",
    audio_ms=2_000,
    waited_ms=0,
    snapshot_version=9,
    weights_version=2,
    seed=77,
    strategy="predicted_ms",
    pool_order=("hash.1", "hash.2"),
    rounds=[ROUND],
)


def decided(**changes: Any) -> Decision:
    return DECISION._replace(**changes)


def test_a_choice_is_told_with_its_sum_its_rivals_and_those_left_out() -> None:
    assert words_of(DECISION) == [
        "node-7 was chosen: 412 ms predicted (audio 2000 ms x 0.18 = 360, busy 40, load 12).",
        "node-3 lost by 35 ms: it is busier (busy 80).",
        "3 nodes were not considered: 2 lang_pair_unsupported, 1 capacity_exceeded.",
        "2 nodes could have taken it.",
    ]


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("work", "it is slower with this language pair (work 400)"),
        ("risk", "its speed varies more (risk 40)"),
        ("load", "its machine is more loaded (load 52)"),
        ("stale", "its last heartbeat is older (stale 40)"),
        ("detached", "its socket is closed (detached 40)"),
        ("region", "it is in another region (region 40)"),
        ("tier", "its GPU is of another tier (tier 40)"),
        ("warm", "it did not have the session's last utterance (warm 40)"),
        ("paired", "the session is not paired with it (paired 40)"),
    ],
)
def test_every_term_has_its_words(term: str, words: str) -> None:
    terms = {**SEVEN.terms, term: SEVEN.terms.get(term, 0.0) + 40.0}
    one = ROUND._replace(candidates=[SEVEN, Candidate("node-3", 452, terms, 0)])
    assert words_of(decided(rounds=[one]))[1] == f"node-3 lost by 40 ms: {words}."


def test_a_saving_of_the_chosen_one_is_what_the_other_lacks() -> None:
    warm = SEVEN._replace(score_ms=362, terms={**SEVEN.terms, "warm": -50.0})
    cold = Candidate("node-3", 412, {**SEVEN.terms, "warm": 0.0}, 1)
    words = words_of(decided(rounds=[ROUND._replace(candidates=[warm, cold])]))
    assert words[0].endswith("busy 40, load 12, warm -50).")
    assert words[1] == "node-3 lost by 50 ms: it did not have the session's last utterance (warm 0)."


def test_equals_are_told_as_equals() -> None:
    equal = THREE._replace(score_ms=412, terms=SEVEN.terms)
    assert words_of(decided(rounds=[ROUND._replace(candidates=[SEVEN, equal])]))[1] == (
        "node-3 was as good; chance decided."
    )


def test_a_better_one_that_others_took_is_told_with_what_was_found() -> None:
    better = THREE._replace(score_ms=400, expected=0, answer="moved", found=1)
    words = words_of(decided(rounds=[ROUND._replace(candidates=[better, SEVEN])]))
    assert words[1] == "node-3 was better by 12 ms, but others had just given it a job (1 slots in use, not 0)."


def test_rounds_that_came_to_nothing_are_told_first() -> None:
    moved = [SEVEN._replace(answer="moved"), THREE._replace(answer="gone")]
    words = words_of(decided(rounds=[ROUND._replace(candidates=moved), ROUND]))
    assert words[1] == ("Choice 1 came to nothing: node-7: others had just given it a job; node-3: it had just gone.")


def test_a_refusal_tells_the_nearest_miss_and_when_to_come_again() -> None:
    empty = Round(0, "", {"capacity_exceeded": 4}, [])
    refused = decided(
        outcome="refused",
        node_id="",
        job_id="",
        rounds=[empty],
        reason="capacity_exceeded",
        nearest="node-2 has all of its 4 slots in use",
        retry_after_ms=250,
        waited_ms=10_000,
    )
    assert words_of(refused) == [
        "Nobody was chosen after 10000 ms in the wait queue: capacity_exceeded. Nearest miss: node-2 has all of its 4 "
        "slots in use. It may try again in 250 ms.",
        "4 nodes were not considered: 4 capacity_exceeded.",
    ]


def test_other_outcomes_have_words_too() -> None:
    assert words_of(decided(outcome="bound", rounds=[])) == ["The request was placed before, on node-7."]
    assert words_of(decided(outcome="unknown", node_id="", rounds=[])) == ["Nobody was chosen: unknown."]
    fewest = words_of(decided(strategy="least_connections"))
    assert fewest[0] == "node-7 was chosen: 412 jobs, the fewest."
    assert "lost by 35 jobs" in fewest[1]


def test_the_record_is_json_with_the_words_in_it() -> None:
    record = json.loads(json.dumps(record_of(DECISION)))
    assert record["words"] == words_of(DECISION)
    assert record["rounds"][0]["candidates"][0]["terms"]["work"] == 360.0
    assert record["pool_order"] == ["hash.1", "hash.2"]
    assert (record["seed"], record["weights_version"], record["snapshot_version"]) == (77, 2, 9)
