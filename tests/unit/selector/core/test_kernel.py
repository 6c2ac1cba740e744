from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lua.store.types.nodes import NodeFacts
from mesh.config.scheduler import PoolsConfig
from mesh.config.weights import Weights
from mesh.frames import Dispatch, NodeCaps, NodeLoad
from mesh.states.speed import Speed
from selector.core.filters import REASON, Filter, main_filter, nearest, removed_by_name
from selector.core.job_rows import job_rows, seed_of
from selector.core.kernel import NO_POOL, NO_ROW, PASSED, TERMS, examine
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from tests.support.builders.selector import NO_POOLS, NOW_MS, RULES, facts, job, pick, rules_of, table_of
from tests.support.reference import naive_kernel
from tests.support.reference.naive_kernel import NaiveNode

LANGUAGES = ["en", "zh", "es", "fr"]
SERVICES = ["asr", "nmt", "tts", "tone"]
MODELS = ["emotion-xlm-r", "vc-model-v1"]


def test_no_nodes_gives_no_rows_and_no_counts() -> None:
    choice = pick(NodeTable(nodes_max=10), job())
    assert choice.rows.tolist() == [[NO_ROW] * 3]
    assert choice.removed.sum() == 0 and choice.pool.tolist() == [NO_POOL]
    assert main_filter(choice.removed[0]) is None


# --- each filter as the only obstacle ---------------------------------------------------------------------


def silent() -> NodeTable:
    return table_of(("n", facts()), seen_ms=NOW_MS - 45_000)


def unreachable() -> NodeTable:
    table = table_of(("n", facts(edge="edge:b:1")))
    table.avoid_edge("edge:b:1", NOW_MS + 1)
    return table


def marked() -> NodeTable:
    table = table_of(("n", facts()))
    table.set_marks("n", {"nmt": NOW_MS + 1})
    return table


def one(node: NodeFacts) -> Callable[[], NodeTable]:
    return lambda: table_of(("n", node))


TWO_POOLS = PoolPlan(PoolsConfig(enabled=True, pool_count=2, fallback_scan_all_pools=False))
THE_OTHER_POOL = "hash.1" if TWO_POOLS.order_for("s-1", "", []).preferred == "hash.0" else "hash.0"

ONLY_OBSTACLE: list[tuple[str, Callable[[], NodeTable], Dispatch]] = [
    ("pool_not_eligible", one(facts(in_pools=THE_OTHER_POOL)), job()),
    ("offline", silent, job()),
    ("offline", one(facts(status="offline")), job()),
    ("offline", one(facts(detached_ms=NOW_MS - 3_000)), job()),
    ("status_not_ready", one(facts(status="registering")), job()),
    ("status_not_ready", one(facts(status="degraded")), job()),
    ("draining", one(facts(status="draining")), job()),
    ("edge_unreachable", unreachable, job()),
    ("gpu_unavailable", one(facts(gpu_count=0)), job()),
    ("resource_threshold_exceeded", one(facts(load=NodeLoad(cpu_percent=85.1))), job()),
    ("resource_threshold_exceeded", one(facts(load=NodeLoad(gpu_percent=85.1))), job()),
    ("resource_threshold_exceeded", one(facts(load=NodeLoad(mem_percent=85.1))), job()),
    ("not_in_public_pool", one(facts(accept_public=False)), job(public=True)),
    ("not_in_public_pool", one(facts(accept_public=False, tenant_id="acme")), job(public=True)),
    (
        "tenant_mismatch",
        one(facts(accept_public=False, tenant_id="acme")),
        job(public=False, tenant_id="other"),
    ),
    ("service_not_installed", one(facts(services_installed=["asr", "nmt"])), job()),
    ("service_not_installed", one(facts()), job(services=["asr", "unheard-of"])),
    ("service_not_installed", one(facts(models=[])), job(models=["emotion-xlm-r"])),
    ("service_not_ready", one(facts(services_ready=["asr", "nmt"])), job()),
    ("model_not_available", marked, job()),
    ("asr_lang_unsupported", one(facts()), job(src_lang="es", tgt_lang="en")),
    ("asr_lang_unsupported", one(facts()), job(src_lang="never-heard")),
    ("src_auto_no_candidate", one(facts(asr_langs=[])), job(src_lang="auto")),
    ("src_auto_no_candidate", one(facts()), job(src_lang="auto", auto_langs=["en", "es"])),
    ("src_auto_no_candidate", one(facts()), job(src_lang="auto", lang_a="en", lang_b="es")),
    ("lang_pair_unsupported", one(facts()), job(tgt_lang="fr")),
    ("lang_pair_unsupported", one(facts(pairs=["en>zh"])), job()),
    ("tts_lang_unsupported", one(facts(tts_langs=["en"])), job()),
    ("excluded", one(facts()), job(excluded=["n"])),
    ("capacity_exceeded", one(facts(load=NodeLoad(running_jobs=4))), job()),
    ("capacity_exceeded", one(facts(max_jobs=0)), job()),
]


@pytest.mark.parametrize(("reason", "make", "asked"), ONLY_OBSTACLE, ids=[row[0] for row in ONLY_OBSTACLE])
def test_each_filter_as_the_only_obstacle_gives_the_reason(
    reason: str, make: Callable[[], NodeTable], asked: Dispatch
) -> None:
    table = make()
    plan = TWO_POOLS if reason == "pool_not_eligible" else NO_POOLS
    choice = pick(table, asked, plan=plan)
    assert choice.rows[0, 0] == NO_ROW
    assert removed_by_name(choice.removed[0]) == {reason: 1}
    worst = main_filter(choice.removed[0])
    assert worst is not None and REASON[worst] == reason
    examined = examine(table.columns, table.index(), job_rows([asked], table, plan), table.speeds.prior(), RULES)
    assert examined.obstacle.tolist() == [worst]
    node_id, words = nearest(examined, table)
    assert node_id == "n" and words


def test_every_filter_is_in_the_table() -> None:
    assert {reason for reason, _, _ in ONLY_OBSTACLE} == set(REASON.values())


def test_a_node_that_will_not_be_asked_is_counted_as_that_whatever_else_it_lacks() -> None:
    table = table_of(("n", facts()), ("m", facts(status="degraded")))
    table.set_marks("n", {"nmt": NOW_MS + 60_000})
    choice = pick(table, job(excluded=["n", "m"]))
    assert removed_by_name(choice.removed[0]) == {"excluded": 2}


# --- rules at their edges ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "asked", "fits"),
    [
        # A node that takes no public jobs takes those of its own tenant, and nobody else's.
        (facts(accept_public=False, tenant_id="acme"), job(public=False, tenant_id="acme"), True),
        (facts(accept_public=False, tenant_id="acme"), job(public=True, tenant_id="acme"), True),
        (facts(accept_public=False, tenant_id="acme"), job(public=True, tenant_id="other"), False),
        (facts(accept_public=False, tenant_id="acme"), job(public=False, tenant_id=""), False),
        (facts(accept_public=False, tenant_id=""), job(public=False, tenant_id=""), True),
        (facts(accept_public=False, tenant_id=""), job(public=True, tenant_id=""), False),
        (facts(accept_public=False, tenant_id=""), job(public=False, tenant_id="nobody-knows"), False),
        (facts(accept_public=True, tenant_id=""), job(public=False, tenant_id="acme"), True),
        (facts(accept_public=True, tenant_id="acme"), job(public=True, tenant_id=""), True),
        # Languages.
        (facts(), job(src_lang="EN", tgt_lang="ES"), True),
        (facts(tts_langs=["en"]), job(tgt_lang="es", services=["asr", "nmt"]), True),
        (facts(tts_langs=["es"]), job(tgt_lang="es"), True),
        (facts(), job(src_lang="auto", tgt_lang="es"), True),
        (facts(), job(src_lang="auto", tgt_lang="fr"), False),
        (facts(), job(src_lang="auto", lang_a="en", lang_b="zh"), True),
        (facts(semantic_langs=["en"]), job(src_lang="auto", lang_a="en", lang_b="zh"), False),
        (facts(tts_langs=["en"]), job(src_lang="auto", lang_a="en", lang_b="zh"), False),
        (facts(tts_langs=["en", "zh"]), job(src_lang="auto", lang_a="en", lang_b="zh"), True),
        # The languages that may be spoken are a set, and the node must know all of it.
        (facts(), job(src_lang="auto", auto_langs=["en"]), True),
        (facts(), job(src_lang="auto", auto_langs=["zh", "EN"]), True),
        (facts(), job(src_lang="auto", auto_langs=["en", "zh", "fr"]), False),
        (facts(pairs=["en>es", "zh>es"]), job(src_lang="auto", auto_langs=["en", "zh"]), True),
        (facts(pairs=["en>es"]), job(src_lang="auto", auto_langs=["en", "zh"]), False),
        (facts(pairs=["en>es"]), job(src_lang="auto", auto_langs=["en", "es"], tgt_lang="es"), False),
        (facts(asr_langs=["en", "es"], pairs=["en>es"]), job(src_lang="auto", auto_langs=["en", "es"]), True),
        # Directed pairs.
        (facts(pairs=["EN>es"]), job(), True),
        (facts(pairs=["es>en"]), job(), False),
        (facts(pairs=["en>zh", "zh>en"]), job(src_lang="auto", lang_a="en", lang_b="zh"), True),
        (facts(pairs=["en>zh"]), job(src_lang="auto", lang_a="en", lang_b="zh"), False),
        (facts(pairs=["en>zh"]), job(tgt_lang="es", services=["asr"]), True),
        # A job that skips a stage needs no language of it.
        (facts(), job(src_lang="en", tgt_lang="fr", services=["asr"]), True),
        (facts(asr_langs=[]), job(services=["nmt"]), True),
        # Services, models and load.
        (facts(services_installed=[], services_ready=[]), job(services=[]), True),
        (facts(load=NodeLoad(cpu_percent=85.0, gpu_percent=85.0, mem_percent=85.0)), job(), True),
        (facts(load=NodeLoad(cpu_percent=float("nan"))), job(), True),
        (facts(detached_ms=NOW_MS - 2_999), job(), True),
    ],
)
def test_rules_at_their_edges(node: NodeFacts, asked: Dispatch, fits: bool) -> None:
    assert bool(pick(table_of(("n", node)), asked).rows[0, 0] == 0) is fits


def test_a_model_that_a_feature_needs_must_be_there() -> None:
    table = NodeTable(nodes_max=4, interned=["emotion-xlm-r", "tone"])
    table.apply(0, 1, "without", 0, NOW_MS, facts(models=["emotion-xlm", "other"]))
    table.apply(0, 1, "with", 0, NOW_MS, facts(models=["Emotion-XLM-R"]))
    choice = pick(table, job(models=["emotion-xlm-r"]))
    assert choice.rows[0].tolist() == [1, NO_ROW, NO_ROW] and choice.removed[0, Filter.INSTALLED] == 1
    assert pick(table, job(models=["nobody-has-it"])).rows[0, 0] == NO_ROW


def test_a_silent_node_is_offline_from_the_timeout_on() -> None:
    for age_ms, stopped in ((44_999, False), (45_000, True)):
        choice = pick(table_of(("n", facts()), seen_ms=NOW_MS - age_ms), job())
        assert bool(choice.removed[0, Filter.OFFLINE] == 1) is stopped


def test_nodes_of_an_unreachable_edge_are_avoided_until_they_connect_again() -> None:
    table = unreachable()
    assert pick(table, job(), rules=RULES._replace(now_ms=NOW_MS + 1)).rows[0, 0] == 0
    table.apply(0, 2, "n", 0, NOW_MS, facts(edge="edge:c:1", epoch=2))
    assert pick(table, job()).rows[0, 0] == 0


def test_running_jobs_count_only_while_the_heartbeat_is_fresh() -> None:
    busy = facts(load=NodeLoad(running_jobs=4))
    assert pick(table_of(("n", busy), seen_ms=NOW_MS - 1_999), job()).rows[0, 0] == NO_ROW
    assert pick(table_of(("n", busy), seen_ms=NOW_MS - 2_000), job()).rows[0, 0] == 0


# --- score ------------------------------------------------------------------------------------------------


def price_of(node: NodeFacts, asked: Dispatch, weights: Weights | None = None) -> dict[str, float]:
    choice = pick(table_of(("n", node)), asked, rules=rules_of(weights or Weights()))
    assert choice.rows[0, 0] == 0
    assert choice.scores[0, 0] == round(choice.terms[0, 0].sum())
    return {name: value for name, value in zip(TERMS, choice.terms[0, 0].tolist(), strict=True) if value}


def test_each_term_has_its_price() -> None:
    assert price_of(facts(), job(audio_ms=1_000)) == {"work": pytest.approx(300.0)}
    assert price_of(facts(), job(audio_ms=100)) == {"work": pytest.approx(150.0)}, "shorter audio counts as 500 ms"
    assert price_of(facts(), job(audio_ms=0)) == {}
    free = job(audio_ms=0)
    assert price_of(facts(load=NodeLoad(running_jobs=2)), free) == {"busy": pytest.approx(150.0)}
    assert price_of(facts(load=NodeLoad(gpu_percent=50.0)), free) == {"load": pytest.approx(50.0)}
    assert price_of(facts(detached_ms=NOW_MS - 1), free) == {"detached": 2_000.0}
    assert price_of(facts(region="eu"), job(audio_ms=0, region="us")) == {"region": 80.0}
    assert price_of(facts(region="eu"), job(audio_ms=0, region="EU")) == {}
    assert price_of(facts(gpu_tier="a"), job(audio_ms=0, gpu_tier="b")) == {"tier": 150.0}
    assert price_of(facts(), job(audio_ms=0, warm_node="n")) == {"warm": -50.0}
    assert price_of(facts(), job(audio_ms=0, preferred_node="n")) == {"paired": -5_000.0}


def test_a_busy_node_costs_the_more_the_longer_the_job() -> None:
    half_full = facts(load=NodeLoad(running_jobs=2))
    assert price_of(half_full, job(audio_ms=10_000))["busy"] == pytest.approx(1_500.0), "half of 3,000 ms of work"
    assert price_of(half_full, job(audio_ms=500))["busy"] == pytest.approx(150.0), "half of busy_ms, the least"


def test_the_speed_of_a_node_is_learned_and_fades() -> None:
    table = table_of(("n", facts()))
    table.set_speeds("n", {"en>es": Speed(0.9, 0.09, 8.0, NOW_MS), "*": Speed(0.1, 0.0, 8.0, NOW_MS)})
    fresh = pick(table, job(audio_ms=1_000)).terms[0, 0]
    # Eight jobs against one assumed at 0.8 of the fleet's 0.9.
    assert fresh[0] == pytest.approx(1_000 * (8 * 0.9 + 0.72) / 9)
    assert fresh[1] == pytest.approx(1_000 * 0.5 * ((8 * 0.09 / 9) ** 0.5 - 0.15 * 0.9)), "the spread beyond chance"
    later = pick(table, job(audio_ms=1_000), rules=rules_of(Weights(), NOW_MS + 30_000)).terms[0, 0]
    assert 720 < later[0] < fresh[0] and later[1] < fresh[1]
    other_pair = pick(table, job(audio_ms=1_000, tgt_lang="zh")).terms[0, 0]
    assert other_pair[0] == pytest.approx(1_000 * (8 * 0.1 + 0.08) / 9), "of another pair counts what all pairs took"


def test_nobody_is_assumed_to_be_slower_than_the_fleet() -> None:
    table = table_of(("known", facts()), ("new", facts()))
    table.set_speeds("known", {"en>es": Speed(0.5, 0.0, 8.0, NOW_MS)})
    choice = pick(table, job(audio_ms=1_000))
    assert choice.rows[0, :2].tolist() == [1, 0], "newcomers are tried"
    assert choice.terms[0, 0, 0] == pytest.approx(400.0)
    table.remove("known")
    assert pick(table, job(audio_ms=1_000)).terms[0, 0, 0] == pytest.approx(300.0), "nothing is known of anyone"


def test_nodes_that_differ_by_chance_only_are_equals() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(4)))
    for index, mean in enumerate((0.29, 0.30, 0.31, 0.9)):
        table.set_speeds(f"n{index}", {"en>es": Speed(mean, 0.001, 8.0, NOW_MS)})
    firsts = Counter(int(pick(table, job(request_id=f"r{index}")).rows[0, 0]) for index in range(300))
    assert set(firsts) == {0, 1, 2} and min(firsts.values()) > 60


def test_a_result_is_late_after_what_nineteen_of_twenty_take() -> None:
    table = table_of(("n", facts()))
    table.set_speeds("n", {"*": Speed(0.5, 0.04, 1_000.0, NOW_MS)})
    late_ms = pick(table, job(audio_ms=1_000)).late_ms[0, 0]
    assert late_ms == pytest.approx(500 + 1.65 * 200, abs=3)
    newcomer = pick(table_of(("n", facts())), job(audio_ms=1_000)).late_ms[0, 0]
    assert newcomer == 300 + 495, "what is not known is taken to vary a lot"


def test_a_burst_spreads_over_equal_nodes_and_stops_when_all_are_full() -> None:
    table = table_of(*((f"n{index}", facts(max_jobs=2)) for index in range(5)))
    choice = pick(table, *(job(request_id=f"r{index}") for index in range(12)))
    firsts = choice.rows[:, 0].tolist()
    assert sorted(firsts[:5]) == [0, 1, 2, 3, 4]
    assert sorted(firsts[5:10]) == [0, 1, 2, 3, 4]
    assert firsts[10:] == [NO_ROW, NO_ROW]
    assert choice.removed[11, Filter.SLOT] == 5
    assert choice.expected[:10, 0].tolist() == [0] * 5 + [1] * 5, "what Redis will find, job by job"
    table.check()


def test_single_jobs_of_different_requests_share_equal_nodes() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(4)))
    firsts = {int(pick(table, job(request_id=f"r{index}")).rows[0, 0]) for index in range(40)}
    assert firsts == {0, 1, 2, 3}


def test_the_less_used_node_wins_and_warmth_is_worth_a_little_more() -> None:
    table = table_of(("busy", facts()), ("idle", facts()))
    table.patch("busy", 1, 2)
    assert pick(table, job()).rows[0].tolist() == [1, 0, NO_ROW]
    assert pick(table, job(warm_node="busy")).rows[0, 0] == 1, "a quarter of the slots costs more than warmth saves"
    assert pick(table, job(preferred_node="busy")).rows[0, 0] == 0, "a pair is worth more"
    table.patch("busy", 0, 3)
    for index in range(8):
        assert pick(table, job(request_id=f"r{index}", warm_node="busy")).rows[0, 0] == 0


def test_a_paired_node_that_cannot_is_replaced() -> None:
    table = table_of(("paired", facts(status="draining")), ("other", facts()))
    assert pick(table, job(preferred_node="paired")).rows[0].tolist() == [1, NO_ROW, NO_ROW]


def test_stale_nodes_are_priced_without_a_cliff() -> None:
    table = table_of(("fresh", facts()), ("stale", facts()))
    table.apply(0, 2, "stale", 0, NOW_MS - 30_000, None)
    choice = pick(table, job())
    assert choice.rows[0].tolist() == [0, 1, NO_ROW]
    assert choice.scores[0, 1] - choice.scores[0, 0] == 75


def test_least_connections_looks_at_nothing_but_use() -> None:
    rules = rules_of(Weights(strategy="least_connections"))
    table = table_of(("big", facts(max_jobs=64)), ("small", facts(load=NodeLoad(cpu_percent=80))))
    table.patch("big", 2, 2)
    table.patch("small", 1, 2)
    choice = pick(table, job(preferred_node="big"), rules=rules)
    assert choice.rows[0].tolist() == [1, 0, NO_ROW] and choice.scores[0].tolist() == [1, 2, 0]


# --- bounded comparison -------------------------------------------------------------------------------------


def test_no_more_nodes_are_compared_than_asked_for_but_all_are_found_sooner_or_later() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(50)))
    rules = rules_of(Weights(), compared_max=10)
    seen = set()
    for index in range(100):
        choice = pick(table, job(request_id=f"r{index}"), rules=rules)
        assert choice.compared[0] == 10
        seen.add(int(choice.rows[0, 0]))
    assert len(seen) > 40


def test_a_single_free_node_is_found_wherever_the_look_begins() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(50)), used=4)
    table.patch("n33", 3, 2)
    rules = rules_of(Weights(), compared_max=1)
    for index in range(20):
        assert pick(table, job(request_id=f"r{index}"), rules=rules).rows[0, 0] == 33


def test_paired_and_warm_node_are_compared_wherever_the_look_begins() -> None:
    table = table_of(*((f"n{index}", facts()) for index in range(50)))
    rules = rules_of(Weights(), compared_max=3)
    for index in range(10):
        choice = pick(table, job(request_id=f"r{index}", warm_node="n7", preferred_node="n8"), rules=rules)
        assert choice.rows[0, :2].tolist() == [8, 7]


def test_a_fleet_without_a_service_is_not_looked_through() -> None:
    """The counts tell: a node that is not ready counts under its status, the others under what all lack."""
    nodes = [(f"n{index}", facts(services_ready=["asr", "nmt"])) for index in range(5)]
    table = table_of(*nodes, ("d", facts(status="draining")), ("o", facts(status="offline")), ("x", facts(status="?")))
    counts = removed_by_name(pick(table, job()).removed[0])
    assert counts == {"service_not_ready": 5, "draining": 1, "offline": 1, "status_not_ready": 1}
    counts = removed_by_name(pick(table, job(services=["asr", "tone"])).removed[0])
    assert counts == {"service_not_installed": 5, "draining": 1, "offline": 1, "status_not_ready": 1}


def test_an_overloaded_fleet_counts_the_same_for_all_who_need_the_same() -> None:
    table = table_of(*((f"n{index}", facts(max_jobs=1)) for index in range(3)), ("d", facts(status="degraded")))
    same = [job(request_id=f"r{index}") for index in range(80)]
    others = [job(request_id=f"o{index}", tgt_lang="fr") for index in range(5)]
    excluding = job(request_id="x", excluded=["n0"])
    choice = pick(table, *same, *others, excluding)
    assert (choice.rows[:3, 0] != NO_ROW).all() and (choice.rows[3:] == NO_ROW).all()
    counts = [removed_by_name(row) for row in choice.removed]
    assert all(row == {"capacity_exceeded": 3, "status_not_ready": 1} for row in counts[3:80])
    assert all(row == {"lang_pair_unsupported": 3, "status_not_ready": 1} for row in counts[80:85])
    assert counts[85] == {"capacity_exceeded": 2, "excluded": 1, "status_not_ready": 1}


# --- the naive twin -----------------------------------------------------------------------------------------


def some(values: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=len(values))


percents = st.sampled_from([0.0, 10.0, 33.3, 84.9, 85.0, 85.1, 100.0])
places = st.sampled_from(["", "eu", "us"])
pairs = st.one_of(st.just([]), some([f"{a}>{b}" for a in LANGUAGES for b in LANGUAGES if a != b]))
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
    region=places,
    gpu_tier=places,
    tenant_id=st.sampled_from(["", "acme", "globex"]),
    models=some(MODELS),
    pairs=pairs,
)
generous_caps = st.builds(
    NodeCaps,
    version=st.just("1"),
    platform=st.just("x"),
    cpu_cores=st.just(1),
    memory_gb=st.just(1.0),
    gpu_count=st.just(1),
    gpu_memory_gb=st.just(1.0),
    services_installed=st.just(SERVICES),
    services_ready=st.just(SERVICES),
    asr_langs=st.just(LANGUAGES),
    semantic_langs=st.just(LANGUAGES),
    tts_langs=st.just([]),
    accept_public=st.just(True),
    max_jobs=st.integers(1, 5),
    region=places,
    gpu_tier=places,
    models=st.just(MODELS),
)
speed = st.builds(
    Speed,
    st.floats(0.01, 5.0),
    st.floats(0.0, 2.0),
    st.floats(0.1, 8.0),
    st.integers(NOW_MS - 600_000, NOW_MS + 10),
)
speeds = st.dictionaries(st.sampled_from(["*", "en>es", "zh>en", "auto>en"]), speed, max_size=4)
nodes = st.lists(
    st.builds(
        NaiveNode,
        row=st.just(0),
        node_id=st.just(""),
        status=st.sampled_from(["ready"] * 6 + ["degraded", "draining", "offline"]),
        caps=st.one_of(generous_caps, node_caps),
        load=st.builds(NodeLoad, percents, percents, percents, st.integers(0, 5)),
        leases=st.integers(0, 5),
        seen_ms=st.sampled_from([NOW_MS - age for age in (0, 1_000, 2_000, 14_000, 16_000, 44_999, 45_000)]),
        unreachable_until_ms=st.sampled_from([0, 0, 0, NOW_MS + 1]),
        detached_ms=st.sampled_from([0, 0, 0, NOW_MS - 2_999, NOW_MS - 3_000]),
        pool=st.sampled_from(["hash.0", "hash.1", "hash.2"]),
        marks=st.sampled_from([set(), set(), set(), {"asr"}, {"tts", "tone"}]),
        speeds=speeds,
    ),
    max_size=12,
)
jobs = st.lists(
    st.builds(
        job,
        request_id=st.uuids().map(str),
        attempt=st.integers(1, 3),
        session_id=st.sampled_from(["s-1", "s-2", "s-3", "s-4"]),
        tenant_id=st.sampled_from(["", "acme", "globex"]),
        src_lang=st.sampled_from([*LANGUAGES, "auto"]),
        tgt_lang=st.sampled_from(LANGUAGES),
        lang_a=st.sampled_from(["", *LANGUAGES]),
        lang_b=st.sampled_from(["", *LANGUAGES]),
        auto_langs=some(LANGUAGES),
        services=some(SERVICES),
        models=st.one_of(st.just([]), some(MODELS)),
        public=st.booleans(),
        audio_ms=st.sampled_from([0, 100, 1_500, 20_000]),
        region=places,
        gpu_tier=places,
        excluded=some(["n0", "n1", "n2", "never-seen"]),
        preferred_node=st.sampled_from(["", "n0", "n3", "never-seen"]),
        warm_node=st.sampled_from(["", "n0", "n4", "never-seen"]),
    ),
    min_size=1,
    max_size=8,
)
weights = st.builds(
    Weights,
    strategy=st.sampled_from(["predicted_ms", "predicted_ms", "least_connections"]),
    busy=st.sampled_from([0.0, 1.0]),
    risk=st.sampled_from([0.0, 0.5, 3.0]),
    speed_even=st.sampled_from([0.0, 0.15, 2.0]),
    optimism_jobs=st.sampled_from([0.01, 1.0, 10.0]),
    warm_ms=st.sampled_from([-100.0, 50.0]),
)
plans = st.builds(
    PoolsConfig,
    enabled=st.just(True),
    pool_count=st.just(3),
    fallback_scan_all_pools=st.booleans(),
).map(PoolPlan)


def table_from(naive: list[NaiveNode]) -> NodeTable:
    table = NodeTable(nodes_max=16, interned=MODELS)
    for row, node in enumerate(naive):
        node.row, node.node_id = row, f"n{row}"
        told = NodeFacts("e", 1, node.status, node.caps, node.load, node.pool, node.detached_ms)
        table.apply(0, 1, node.node_id, node.leases, node.seen_ms, told)
        table.set_speeds(node.node_id, node.speeds)
        table.set_marks(node.node_id, dict.fromkeys(node.marks, NOW_MS + 1))
        table.columns.unreachable_until_ms[row] = node.unreachable_until_ms
    return table


@settings(deadline=None, max_examples=400)
@given(
    naive=nodes,
    jobs=jobs,
    best=st.integers(1, 5),
    weights=weights,
    compared_max=st.sampled_from([1, 3, 100]),
    plan=st.one_of(st.just(NO_POOLS), plans),
)
def test_kernel_equals_its_naive_twin(
    naive: list[NaiveNode], jobs: list[Dispatch], best: int, weights: Weights, compared_max: int, plan: PoolPlan
) -> None:
    table = table_from(naive)
    if not plan.enabled:
        for node in naive:  # without pools they are looked at one after the other, in the order of their numbers
            node.pool = "hash.0"
            table.apply(0, 1, node.node_id, node.leases, node.seen_ms, facts_in(table, node.node_id, "hash.0"))
            table.columns.unreachable_until_ms[node.row] = node.unreachable_until_ms
    rules = rules_of(weights, compared_max=compared_max)
    # Once more, as others would ask: whoever needs the same as one that found nobody is answered without a look.
    jobs += [msgspec.structs.replace(one, request_id=f"{one.request_id}b", warm_node="n1") for one in jobs]
    choice = pick(table, *jobs, rules=rules, best=best, plan=plan)
    batch = naive_kernel.Batch(naive, rules, best)
    for index, asked in enumerate(jobs):
        order = ["hash.0"] if not plan.enabled else list(order_of(asked, plan))
        expected = batch.choose(asked, seed_of(asked), order)
        found = [row for row, *_ in expected.candidates]
        assert choice.rows[index].tolist() == found + [NO_ROW] * (best - len(found))
        for place, (_, points, terms, used, late_ms) in enumerate(expected.candidates):
            assert choice.scores[index, place] == points
            assert choice.terms[index, place].tolist() == terms
            assert choice.expected[index, place] == used
            assert choice.late_ms[index, place] == late_ms
        counts = {Filter(place): count for place, count in enumerate(choice.removed[index].tolist()) if count}
        assert counts == expected.removed
        assert choice.compared[index] == expected.compared
        pool = int(choice.pool[index])
        assert (table.pools.string(pool) if pool != NO_POOL else None) == expected.pool
        if not found:
            assert sum(counts.values()) == len(naive), "without a candidate every node was counted"
    table.check()


def facts_in(table: NodeTable, node_id: str, pool: str) -> NodeFacts:
    known = table.facts_of(node_id)
    assert known is not None
    return known._replace(pools=pool)


def order_of(asked: Dispatch, plan: PoolPlan) -> tuple[str, ...]:
    return plan.order_for(asked.tenant_id or asked.session_id, asked.tenant_id, asked.services).order


@settings(deadline=None, max_examples=200)
@given(naive=nodes, asked=jobs, weights=weights, plan=plans)
def test_examining_equals_the_naive_twin(
    naive: list[NaiveNode], asked: list[Dispatch], weights: Weights, plan: PoolPlan
) -> None:
    table, rules = table_from(naive), rules_of(weights)
    for one_job in asked:
        rows = job_rows([one_job], table, plan)
        examined = examine(table.columns, table.index(), rows, table.speeds.prior(), rules)
        batch = naive_kernel.Batch(naive, rules, 1)
        for node in naive:
            used = batch.used(node)
            obstacle = naive_kernel.first_obstacle(node, one_job, list(order_of(one_job, plan)), used, rules)
            assert examined.obstacle[node.row] == (PASSED if obstacle is None else obstacle)
            terms, _ = naive_kernel.terms_of(node, one_job, used, naive, rules)
            assert examined.terms[node.row].tolist() == terms
            assert examined.scores[node.row] == naive_kernel.rounded(terms)
