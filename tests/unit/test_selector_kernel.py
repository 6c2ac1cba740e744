from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.frames import Dispatch, NodeCaps, NodeLoad
from selector.core.columns import NodeFacts, NodeTable
from selector.core.filters import Filter
from selector.core.kernel import LEAST_CONNECTIONS, NO_ROW, PREDICTED_MS
from selector.core.requests import seed_of
from tests.unit import naive_kernel
from tests.unit.naive_kernel import NaiveNode
from tests.unit.selector_samples import NOW_MS, RULES, facts, job, pick, table_of

LANGUAGES = ["en", "zh", "es", "fr"]
SERVICES = ["asr", "nmt", "tts", "tone"]


def test_no_nodes_gives_no_rows_and_no_counts() -> None:
    choice = pick(NodeTable(nodes_max=10), job())
    assert choice.rows.tolist() == [[NO_ROW] * 3]
    assert choice.removed.sum() == 0


ONLY_OBSTACLE = {
    Filter.STATUS: (facts(status="degraded"), job()),
    Filter.GPU: (facts(gpu_count=0), job()),
    Filter.RESOURCES: (facts(load=NodeLoad(gpu_percent=85.1)), job()),
    Filter.PUBLIC: (facts(accept_public=False), job(public=True)),
    Filter.TENANT: (facts(accept_public=False, tenant_id="acme"), job(public=False, tenant_id="other")),
    Filter.INSTALLED: (facts(services_installed=["asr", "nmt"]), job()),
    Filter.READY: (facts(services_ready=["asr", "nmt"]), job()),
    Filter.LANGUAGE: (facts(), job(src_lang="fr")),
    Filter.EXCLUDED: (facts(), job(excluded=["n"])),
    Filter.SLOT: (facts(load=NodeLoad(running_jobs=4)), job()),
}


@pytest.mark.parametrize("obstacle", ONLY_OBSTACLE, ids=lambda f: f.name)
def test_each_filter_as_the_only_obstacle(obstacle: Filter) -> None:
    node, asked = ONLY_OBSTACLE[obstacle]
    choice = pick(table_of(("n", node)), asked)
    assert choice.rows[0, 0] == NO_ROW
    assert choice.removed[0].tolist() == [int(place == obstacle) for place in range(len(Filter))]


def test_a_silent_node_is_offline_from_the_timeout_on() -> None:
    for age_ms, stopped in ((44_999, False), (45_000, True)):
        choice = pick(table_of(("n", facts()), seen_ms=NOW_MS - age_ms), job())
        assert bool(choice.removed[0, Filter.OFFLINE] == 1) is stopped


def test_nodes_of_an_unreachable_edge_are_avoided_until_they_connect_again() -> None:
    table = table_of(("n", facts(edge="edge:b:1")))
    assert table.avoid_edge("edge:b:1", NOW_MS + 1) == 1
    assert pick(table, job()).removed[0, Filter.UNREACHABLE] == 1
    assert pick(table, job(), rules=RULES._replace(now_ms=NOW_MS + 1)).rows[0, 0] == 0
    table.apply(0, 2, "n", 0, NOW_MS, facts(edge="edge:c:1", epoch=2))
    assert pick(table, job()).rows[0, 0] == 0


@pytest.mark.parametrize(
    ("node", "asked", "fits"),
    [
        # A public job goes to public nodes only; a private node serves its own tenant only.
        (facts(accept_public=False, tenant_id="acme"), job(public=False, tenant_id="acme"), True),
        (facts(accept_public=True, tenant_id=""), job(public=False, tenant_id="acme"), True),
        (facts(accept_public=True, tenant_id="acme"), job(public=True, tenant_id=""), True),
        (facts(accept_public=False, tenant_id="acme"), job(public=False, tenant_id=""), False),
        (facts(accept_public=False, tenant_id="acme"), job(public=True, tenant_id="acme"), False),
        (facts(accept_public=False, tenant_id=""), job(public=False, tenant_id=""), True),
        (facts(accept_public=False, tenant_id=""), job(public=False, tenant_id="nobody-knows"), False),
        # Languages.
        (facts(), job(src_lang="EN", tgt_lang="ES"), True),
        (facts(), job(src_lang="en", tgt_lang="fr"), False),
        (facts(tts_langs=["en"]), job(tgt_lang="es"), False),
        (facts(tts_langs=["en"]), job(tgt_lang="es", services=["asr", "nmt"]), True),
        (facts(tts_langs=["es"]), job(tgt_lang="es"), True),
        (facts(), job(src_lang="auto", tgt_lang="es"), True),
        (facts(asr_langs=[]), job(src_lang="auto", tgt_lang="es"), False),
        (facts(), job(src_lang="auto", tgt_lang="fr"), False),
        (facts(), job(src_lang="auto", lang_a="en", lang_b="zh"), True),
        (facts(), job(src_lang="auto", lang_a="en", lang_b="es"), False),  # es is not recognised
        (facts(semantic_langs=["en"]), job(src_lang="auto", lang_a="en", lang_b="zh"), False),
        (facts(tts_langs=["en"]), job(src_lang="auto", lang_a="en", lang_b="zh"), False),
        (facts(tts_langs=["en", "zh"]), job(src_lang="auto", lang_a="en", lang_b="zh"), True),
        # Services and load.
        (facts(), job(services=["asr", "unheard-of"]), False),
        (facts(services_installed=[], services_ready=[]), job(services=[]), True),
        (facts(load=NodeLoad(cpu_percent=85.0, gpu_percent=85.0, mem_percent=85.0)), job(), True),
        (facts(load=NodeLoad(cpu_percent=float("nan"))), job(), True),
        (facts(max_jobs=0), job(), False),
    ],
)
def test_rules_at_their_edges(node: NodeFacts, asked: Dispatch, fits: bool) -> None:
    assert bool(pick(table_of(("n", node)), asked).rows[0, 0] == 0) is fits


def test_running_jobs_count_only_while_the_heartbeat_is_fresh() -> None:
    busy = facts(load=NodeLoad(running_jobs=4))
    assert pick(table_of(("n", busy), seen_ms=NOW_MS - 1_999), job()).rows[0, 0] == NO_ROW
    assert pick(table_of(("n", busy), seen_ms=NOW_MS - 2_000), job()).rows[0, 0] == 0


def test_a_burst_spreads_over_equal_nodes_and_stops_when_all_are_full() -> None:
    table = table_of(*((f"n{index}", facts(max_jobs=2)) for index in range(5)))
    choice = pick(table, *(job(request_id=f"r{index}") for index in range(12)))
    firsts = choice.rows[:, 0].tolist()
    assert sorted(firsts[:5]) == [0, 1, 2, 3, 4]
    assert sorted(firsts[5:10]) == [0, 1, 2, 3, 4]
    assert firsts[10:] == [NO_ROW, NO_ROW]
    assert choice.removed[11, Filter.SLOT] == 5


def test_single_jobs_of_different_requests_share_equal_nodes() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(4)))
    firsts = {int(pick(table, job(request_id=f"r{index}")).rows[0, 0]) for index in range(40)}
    assert firsts == {0, 1, 2, 3}


def test_the_less_used_node_wins_and_the_preferred_one_is_worth_a_little_more() -> None:
    table = table_of(("busy", facts()), ("idle", facts()))
    table.patch("busy", 1, 2)
    assert pick(table, job()).rows[0].tolist() == [1, 0, NO_ROW]
    assert pick(table, job(preferred_node="busy")).rows[0, 0] == 1, (
        "a quarter of the slots costs more than warmth saves"
    )
    table.patch("busy", 0, 3)
    for index in range(8):
        assert pick(table, job(request_id=f"r{index}", preferred_node="busy")).rows[0, 0] == 0


def test_stale_nodes_are_priced_without_a_cliff() -> None:
    table = table_of(("fresh", facts()), ("stale", facts()))
    table.apply(0, 2, "stale", 0, NOW_MS - 30_000, None)
    choice = pick(table, job())
    assert choice.rows[0].tolist() == [0, 1, NO_ROW]
    assert choice.scores[0, 1] - choice.scores[0, 0] == 75


def test_least_connections_looks_at_nothing_but_use() -> None:
    rules = RULES._replace(strategy=LEAST_CONNECTIONS)
    table = table_of(("big", facts(max_jobs=64)), ("small", facts(load=NodeLoad(cpu_percent=80))))
    table.patch("big", 2, 2)
    table.patch("small", 1, 2)
    assert pick(table, job(), rules=rules).rows[0, 0] == 1


def some(values: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=len(values))


percents = st.sampled_from([0.0, 10.0, 33.3, 84.9, 85.0, 85.1, 100.0])
node_caps = st.builds(
    NodeCaps,
    version=st.just("1"),
    platform=st.just("x"),
    cpu_cores=st.just(1),
    memory_gb=st.just(1.0),
    gpu_count=st.sampled_from([0, 1, 1, 1]),
    gpu_memory_gb=st.just(1.0),
    services_installed=some(SERVICES),
    services_ready=some(SERVICES),
    asr_langs=some(LANGUAGES),
    semantic_langs=some(LANGUAGES),
    tts_langs=some(LANGUAGES),
    accept_public=st.booleans(),
    max_jobs=st.integers(1, 5),
    tenant_id=st.sampled_from(["", "acme", "globex"]),
)
generous_caps = node_caps.map(
    lambda c: NodeCaps(
        c.version, c.platform, 1, 1.0, 1, 1.0, SERVICES, SERVICES, LANGUAGES, LANGUAGES, c.tts_langs, True, c.max_jobs
    )
)
nodes = st.lists(
    st.tuples(
        st.one_of(generous_caps, node_caps),
        st.builds(NodeLoad, percents, percents, percents, st.integers(0, 5)),
        st.sampled_from(["ready", "ready", "ready", "degraded"]),
        st.integers(0, 5),  # leases
        st.sampled_from([0, 1_000, 2_000, 14_000, 16_000, 44_999, 45_000]),  # age
        st.sampled_from([0, 0, 0, NOW_MS + 1]),
    ),
    max_size=12,
)
jobs = st.lists(
    st.builds(
        job,
        request_id=st.uuids().map(str),
        attempt=st.integers(1, 3),
        tenant_id=st.sampled_from(["", "acme", "globex"]),
        src_lang=st.sampled_from([*LANGUAGES, "auto"]),
        tgt_lang=st.sampled_from(LANGUAGES),
        lang_a=st.sampled_from(["", *LANGUAGES]),
        lang_b=st.sampled_from(["", *LANGUAGES]),
        services=some(SERVICES),
        public=st.booleans(),
        excluded=some(["n0", "n1", "n2", "never-seen"]),
        preferred_node=st.sampled_from(["", "n0", "n3", "never-seen"]),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=300)
@given(nodes=nodes, jobs=jobs, best=st.integers(1, 5), strategy=st.sampled_from([PREDICTED_MS, LEAST_CONNECTIONS]))
def test_kernel_equals_its_naive_twin(
    nodes: list[tuple[NodeCaps, NodeLoad, str, int, int, int]], jobs: list[Dispatch], best: int, strategy: int
) -> None:
    table = NodeTable(nodes_max=16)
    naive = []
    for index, (its_caps, load, status, leases, age_ms, unreachable_until_ms) in enumerate(nodes):
        seen_ms = NOW_MS - age_ms
        table.apply(0, 1, f"n{index}", leases, seen_ms, NodeFacts("e", 1, status, its_caps, load))
        table.columns.unreachable_until_ms[index] = unreachable_until_ms
        naive.append(NaiveNode(index, f"n{index}", status, its_caps, load, leases, seen_ms, unreachable_until_ms))
    rules = RULES._replace(strategy=strategy)
    choice = pick(table, *jobs, rules=rules, best=best)
    expected = naive_kernel.choose(naive, jobs, [seed_of(asked) for asked in jobs], rules, best)
    for index, (candidates, removed) in enumerate(expected):
        padded = [row for row, _ in candidates] + [NO_ROW] * (best - len(candidates))
        assert choice.rows[index].tolist() == padded
        assert choice.scores[index, : len(candidates)].tolist() == [points for _, points in candidates]
        assert {Filter(place): count for place, count in enumerate(choice.removed[index].tolist()) if count} == removed
