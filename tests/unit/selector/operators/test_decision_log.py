from __future__ import annotations

import pytest

from lua.store.types.commits import Committed
from mesh.config import Config
from mesh.config.network import SelectorConfig
from mesh.config.weights import Weights
from mesh.frames import Dispatch
from selector.core.job_rows import job_rows, seed_of
from selector.core.kernel import NO_ROW, choose
from selector.core.node_table import NodeTable
from selector.operators.core.recording_format import unpack
from selector.operators.decision_log import DecisionLog
from selector.placement.core import replies
from selector.placement.placement import Placement
from tests.support.builders.selector import NOW_MS, facts, job, table_of
from tests.support.simulation.selector import PLAN_ANYWHERE, rules_at


def decisions(**limits: int) -> DecisionLog:
    return DecisionLog(Config(selector=SelectorConfig(**limits)))


def request(dispatch: Dispatch) -> Placement:
    return Placement(dispatch, [b"work", b"audio"], "broker", "unique", NOW_MS, needs=1)


def decide(kept: DecisionLog, table: NodeTable, dispatch: Dispatch, *, conflict: bool = False) -> Placement:
    """Choose for one request and end it as the placer does."""
    asked = request(dispatch)
    rules, rows = rules_at(NOW_MS, Weights()), job_rows([dispatch], table, PLAN_ANYWHERE)
    choice = choose(table.columns, table.index(), rows, table.speeds.prior(), rules, 3)
    asked.candidates = [table.id_of(row) for row in choice.rows[0].tolist() if row != NO_ROW]
    asked.removed = choice.removed[0].tolist()
    kept.note([asked], table, rows, table.speeds.prior(), rules, choice, Weights(), 5)
    if not asked.candidates:
        refused = replies.refusal(dispatch, asked.removed, 0, nearest=("n-1", "is not ready"))
        kept.end(asked, "refused", refused=refused)
        return asked
    taken = asked.candidates[1 if conflict else 0]
    if conflict:
        [chosen] = asked.rounds
        asked.rounds = [chosen._replace(reasons=("moved",), seen=((asked.candidates[0], 3, 9),))]
    job_id = f"job-01-{dispatch.request_id}-{dispatch.attempt}"
    kept.end(asked, "new", answer=Committed("new", job_id, taken, attempt=dispatch.attempt))
    return asked


@pytest.fixture
def table() -> NodeTable:
    return table_of(*((f"n-{number}", facts()) for number in range(4)), ("deaf", facts(asr_langs=[])))


def test_a_decision_is_found_by_request_and_by_job(table: NodeTable) -> None:
    kept = decisions()
    asked = decide(kept, table, job(request_id="r-1"))
    record = kept.find("r-1")
    assert record is not None
    assert record == kept.find("job-01-r-1-1")
    assert record["node_id"] == asked.candidates[0]
    assert record["seed"] == seed_of(asked.dispatch)
    assert (record["weights_version"], record["snapshot_version"]) == (5, table.version)
    [one] = record["rounds"]
    assert one["compared"] == 4
    assert one["removed"] == {"asr_lang_unsupported": 1}
    assert one["candidates"][0]["answer"] == "taken"
    assert sum(one["candidates"][0]["terms"].values()) == pytest.approx(one["candidates"][0]["score_ms"], abs=0.51)
    assert kept.find("r-2") is None


def test_what_the_commit_found_is_in_the_record(table: NodeTable) -> None:
    kept = decisions()
    decide(kept, table, job(request_id="r-1"), conflict=True)
    record = kept.find("r-1")
    assert record is not None
    first, second, _ = record["rounds"][0]["candidates"]
    assert (first["answer"], first["expected"], first["found"]) == ("moved", 0, 3)
    assert second["answer"] == "taken"


def test_a_refusal_has_its_nearest_miss_in_words(table: NodeTable) -> None:
    kept = decisions()
    decide(kept, table, job(request_id="r-1", src_lang="xx"))
    record = kept.find("r-1")
    assert record is not None
    assert record["words"] == [
        "Nobody was chosen: asr_lang_unsupported. Nearest miss: n-1 is not ready.",
        "5 nodes were not considered: 5 asr_lang_unsupported.",
    ]


def test_the_latest_attempt_answers_for_the_request_and_each_job_for_itself(table: NodeTable) -> None:
    kept = decisions()
    for attempt in (1, 2):
        decide(kept, table, job(request_id="r-1", attempt=attempt))
    latest, first = kept.find("r-1"), kept.find("job-01-r-1-1")
    assert latest is not None and first is not None
    assert (latest["attempt"], first["attempt"]) == (2, 1)


def test_a_repeat_does_not_hide_the_placing(table: NodeTable) -> None:
    kept = decisions()
    asked = decide(kept, table, job(request_id="r-1"))
    kept.end(asked, "bound", answer=Committed("bound", "job-01-r-1-1", asked.candidates[0]))
    record = kept.find("r-1")
    assert record is not None and record["outcome"] == "new"


async def test_oldest_records_are_evicted_by_number(table: NodeTable) -> None:
    kept = decisions(decisions_kept=10)
    for number in range(25):
        decide(kept, table, job(request_id=f"r-{number}"))
        assert len(kept) <= 10
    assert kept.find("r-24") is not None
    assert kept.find("r-5") is None
    assert kept.find("job-01-r-5-1") is None
    assert len(unpack(await kept.recording()).batches) == 10


def test_oldest_records_are_evicted_by_bytes(table: NodeTable) -> None:
    kept = decisions(decisions_bytes_max=64 * 1024)
    for number in range(200):
        decide(kept, table, job(request_id=f"r-{number}"))
    assert 3 < len(kept) < 50
    assert kept.find("r-199") is not None
    assert kept.find("r-0") is None


async def test_refusals_without_any_choice_are_bounded_too() -> None:
    kept = decisions(decisions_kept=10)
    for number in range(40):
        asked = request(job(request_id=f"r-{number}"))
        kept.end(asked, "refused", refused=replies.refusal(asked.dispatch, [0] * 18, 100))
    assert len(kept) == 10
    assert await kept.recording() == b""
    record = kept.find("r-39")
    assert record is not None and record["words"][0].startswith("Nobody was chosen: no_nodes.")


async def test_a_recording_can_be_packed_beside_the_work(table: NodeTable) -> None:
    kept = decisions()
    decide(kept, table, job(request_id="r-1"))
    assert unpack(await kept.recording()).batches[0].weights_version == 5
