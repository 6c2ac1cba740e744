from __future__ import annotations

from typing import Any

import pytest

from mesh.config.scheduler import Pool, PoolsConfig, TenantPool
from mesh.frames import Dispatch
from mesh.ids import is_id
from selector.core.filters import Filter, removed_by_name
from selector.core.job_rows import job_rows, order_of
from selector.core.kernel import NO_POOL, NO_ROW
from selector.core.node_table import NodeTable
from selector.core.pool_index import index_of
from selector.core.pools import ANYWHERE, NOWHERE, PoolPlan, fnv1a, home_among
from tests.support.builders.selector import NO_POOLS, NOW_MS, caps, facts, job, pick

CORE = ["asr", "nmt", "tts"]


def plan_of(*pools: Pool, **settings: Any) -> PoolPlan:
    return PoolPlan(PoolsConfig(enabled=True, pools=list(pools), **settings))


def hash_of(key: str, seed: int = 0) -> int:
    return fnv1a(key.encode() + seed.to_bytes(8, "little"))


# --- where nodes belong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "digest"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_fnv1a_gives_the_published_values(text: bytes, digest: int) -> None:
    assert fnv1a(text) == digest


def test_a_hash_pool_follows_from_the_id_and_the_seed() -> None:
    for seed in (0, 7, 2**63 - 1):
        plan = plan_of(pool_count=16, hash_seed=seed)
        for node_id in ("n", "node-1", "node-2"):
            assert plan.home_of(node_id, caps()) == f"hash.{hash_of(node_id, seed) % 16}"


def test_hash_pools_are_about_equally_large() -> None:
    plan = plan_of(pool_count=8)
    sizes = [0] * 8
    for index in range(8_000):
        sizes[int(plan.home_of(f"node-{index}", caps()).partition(".")[2])] += 1
    assert min(sizes) > 850 and max(sizes) < 1_150


GPU = Pool(pool_id=1, name="all", required_services=CORE)
TONE = Pool(pool_id=2, required_services=[*CORE, "tone"])
ANY = Pool(pool_id=9, name="wildcard")
CHINESE = Pool(pool_id=3, languages=["zh", "EN"])
EUROPE = Pool(pool_id=4, region="eu", gpu_tier="a100")


@pytest.mark.parametrize(
    ("pools", "node", "home"),
    [
        ([GPU, TONE, ANY], caps(), "cap.1"),
        ([GPU, TONE, ANY], caps(services_installed=[*CORE, "TONE"]), "cap.2"),  # the most specific one
        ([GPU, TONE, ANY], caps(services_installed=["asr"]), "cap.9"),  # no condition is met by everyone
        ([GPU, TONE], caps(services_installed=["asr"]), ""),  # in no pool
        ([GPU], caps(services_ready=[]), "cap.1"),  # installed counts, ready changes by the minute
        # A language set must be among the languages that the node both understands and translates to.
        ([CHINESE, ANY], caps(asr_langs=["en", "zh", "fr"], semantic_langs=["zh", "en"]), "cap.3"),
        ([CHINESE, ANY], caps(asr_langs=["en", "zh"], semantic_langs=["en", "es"]), "cap.9"),
        ([CHINESE, ANY], caps(asr_langs=["en"], semantic_langs=["zh", "en"]), "cap.9"),
        # Region and GPU tier.
        ([EUROPE, ANY], caps(region="EU", gpu_tier="A100"), "cap.4"),
        ([EUROPE, ANY], caps(region="eu", gpu_tier="t4"), "cap.9"),
        ([EUROPE, ANY], caps(region="", gpu_tier="a100"), "cap.9"),
        # Every condition counts one.
        ([GPU, CHINESE, EUROPE, ANY], caps(region="eu", gpu_tier="a100"), "cap.1"),
    ],
)
def test_a_node_belongs_to_the_most_specific_pool_that_it_fits(pools: list[Pool], node: Any, home: str) -> None:
    assert plan_of(*pools).home_of("n", node) == home
    assert plan_of(*reversed(pools)).home_of("n", node) == home, "the order of the pools does not matter"


def test_equally_specific_pools_share_their_nodes_by_hash() -> None:
    plan = plan_of(*(Pool(pool_id=number, required_services=CORE) for number in (30, 10, 20)))
    homes = {f"n{index}": plan.home_of(f"n{index}", caps()) for index in range(60)}
    assert set(homes.values()) == {"cap.10", "cap.20", "cap.30"}
    assert all(home == f"cap.{(10, 20, 30)[hash_of(node_id) % 3]}" for node_id, home in homes.items())


def test_without_pools_nobody_has_a_home_but_the_other_sets() -> None:
    assert NO_POOLS.home_of("n", caps()) == ""
    assert NO_POOLS.sets_of("n", caps(asr_langs=["en"], semantic_langs=["es"])) == ["pair.en.es"]


def test_a_node_is_listed_at_home_in_its_place_with_its_language_set_and_its_pairs() -> None:
    node = caps(asr_langs=["zh", "EN"], semantic_langs=["en", "zh", "es"], region="EU", gpu_tier="a100")
    assert plan_of(pool_count=1).sets_of("n", node) == [
        "hash.0",
        "place.eu.a100",
        "langs.en-zh",
        "pair.en.es",
        "pair.en.zh",
        "pair.zh.en",
        "pair.zh.es",
    ]
    assert plan_of(pool_count=1).sets_of("n", caps(region="eu"))[1] == "place.eu.any"


def test_pairs_that_a_node_names_are_its_only_ones() -> None:
    node = caps(asr_langs=["en", "zh"], semantic_langs=["en", "zh"], pairs=["zh>en", "EN>fr"])
    assert NO_POOLS.sets_of("n", node) == ["langs.en-zh", "pair.en.fr", "pair.zh.en"]


def test_sets_are_bounded_and_always_the_same_ones() -> None:
    many = [f"l{index:02d}" for index in range(40)]
    plan = plan_of(sets_per_node_max=64)
    sets = plan.sets_of("n", caps(asr_langs=many, semantic_langs=many))
    assert len(sets) == 64 and sets[0] == plan.home_of("n", caps())
    assert plan.sets_of("n", caps(asr_langs=many[::-1], semantic_langs=many[::-1])) == sets
    assert len(plan_of(sets_per_node_max=1).sets_of("n", caps())) == 1


def test_words_that_would_break_a_key_make_no_set() -> None:
    strange = caps(asr_langs=["en", "a.b", "x,y", "{z}", "", "l" * 99], semantic_langs=["es"], region="e.u")
    sets = plan_of().sets_of("n", strange)
    assert sets[1:] == ["pair.en.es"]
    assert all(is_id(name) for name in sets)


def test_home_is_found_among_the_sets_in_any_order() -> None:
    assert home_among("hash.3,langs.en,pair.en.es") == "hash.3"
    assert home_among("cap.7,pair.en.es") == "cap.7"
    assert home_among("langs.en,pair.en.es") == home_among("") == ""


# --- where jobs look --------------------------------------------------------------------------------------


def order(plan: PoolPlan, services: list[str], **asked: Any) -> tuple[str, ...]:
    return plan.order_for("key", "", services, **asked).order


def test_without_pools_a_job_looks_everywhere() -> None:
    assert NO_POOLS.order_for("key", "acme", CORE) == ANYWHERE


def test_hash_pools_are_tried_from_the_preferred_one_around_the_ring() -> None:
    plan = plan_of(pool_count=5)
    for key in ("s-1", "s-2", "s-3", "acme"):
        first = hash_of(key) % 5
        found = plan.order_for(key, "", CORE)
        assert found.preferred == f"hash.{first}"
        assert found.order == tuple(f"hash.{(first + step) % 5}" for step in range(5))


def test_without_fallback_only_the_preferred_pool_is_tried() -> None:
    found = plan_of(pool_count=5, fallback_scan_all_pools=False).order_for("s-1", "", CORE)
    assert found.order == (found.preferred,) and len(found.eligible) == 5


A, B = Pool(pool_id=1, required_services=["asr", "nmt"]), Pool(pool_id=2, required_services=["asr", "nmt", "tts"])
C = Pool(pool_id=3, required_services=["asr", "nmt", "tts", "tone"])


@pytest.mark.parametrize(
    ("scope", "mode", "services", "eligible"),
    [
        ("core_only", "contains", ["asr", "nmt"], {1, 2, 3}),
        ("core_only", "contains", ["asr", "nmt", "tts"], {2, 3}),
        ("core_only", "contains", ["ASR", "nmt", "tts", "tone"], {2, 3}),  # tone does not count
        ("core_only", "contains", [], {1, 2, 3}),
        ("core_only", "exact", ["asr", "nmt"], {1}),
        ("core_only", "exact", ["asr", "nmt", "tts"], {2}),
        ("core_only", "exact", ["asr", "nmt", "tts", "tone"], {2}),
        ("all_required", "contains", ["asr", "nmt", "tts"], {2, 3}),
        ("all_required", "contains", ["asr", "tone"], {3}),
        ("all_required", "exact", ["asr", "nmt", "tts", "tone"], {3}),
        ("all_required", "exact", ["asr", "nmt", "tts"], {2}),
    ],
)
def test_eligibility_by_scope_and_mode(scope: str, mode: str, services: list[str], eligible: set[int]) -> None:
    plan = plan_of(A, B, C, pool_match_scope=scope, pool_match_mode=mode)
    assert set(order(plan, services)) == {f"cap.{number}" for number in eligible}
    with_any = plan_of(A, B, C, ANY, pool_match_scope=scope, pool_match_mode=mode)
    assert set(order(with_any, services)) == {f"cap.{number}" for number in eligible} | {"cap.9"}, "wildcards always"


def test_a_job_that_no_pool_is_meant_for_looks_in_all_unless_that_is_forbidden() -> None:
    lax = plan_of(A, B, pool_match_scope="all_required")
    assert set(order(lax, ["tone"])) == {"cap.1", "cap.2"}
    strict = plan_of(A, B, pool_match_scope="all_required", strict_pool_eligibility=True)
    assert strict.order_for("key", "", ["tone"]) == NOWHERE
    assert NOWHERE.order == () and NOWHERE.reason == "pool_not_eligible"


def test_a_pool_with_languages_takes_jobs_whose_languages_are_among_them() -> None:
    plan = plan_of(Pool(pool_id=1, languages=["en", "zh", "es"]), Pool(pool_id=2, languages=["en", "fr"]), ANY)
    assert set(order(plan, CORE, languages=("en", "es"))) == {"cap.1", "cap.9"}
    assert set(order(plan, CORE, languages=("en",))) == {"cap.1", "cap.2", "cap.9"}
    assert set(order(plan, CORE, languages=("en", "ja"))) == {"cap.9"}


def test_pools_of_the_wanted_region_and_tier_come_first() -> None:
    pools = [
        Pool(pool_id=number, region=region, gpu_tier=tier)
        for number, (region, tier) in enumerate([("us", "b"), ("us", "a"), ("eu", "b"), ("eu", "a")])
    ]
    plan = plan_of(*pools)
    found = order(plan, CORE, region="eu", gpu_tier="a")
    assert found[0] == "cap.3" and found[-1] == "cap.0" and len(found) == 4
    assert set(order(plan, CORE, region="eu")[:2]) == {"cap.2", "cap.3"}


# --- tenants ----------------------------------------------------------------------------------------------

BOUND = [TenantPool(tenant_id="acme", pool_id=2), TenantPool(tenant_id="vault", pool_id=3, exclusive=True)]


def test_a_tenant_with_a_pool_of_its_own_has_no_other() -> None:
    plan = plan_of(A, B, C, ANY, tenant_overrides=BOUND)
    found = plan.order_for("acme", "acme", CORE)
    assert found.order == found.eligible == ("cap.2",)
    assert plan.order_for("vault", "vault", CORE).order == ("cap.3",)


def test_a_tenant_whose_pool_is_not_meant_for_the_job_is_refused_rather_than_sent_elsewhere() -> None:
    plan = plan_of(A, B, ANY, tenant_overrides=[TenantPool(tenant_id="acme", pool_id=1)])
    assert plan.order_for("acme", "acme", CORE) == NOWHERE
    gone = plan_of(A, ANY, tenant_overrides=[TenantPool(tenant_id="acme", pool_id=77)])
    assert gone.order_for("acme", "acme", CORE) == NOWHERE, "a pool that does not exist takes nobody"


def test_nobody_else_looks_in_an_exclusive_pool() -> None:
    plan = plan_of(A, B, C, tenant_overrides=BOUND)
    assert "cap.3" not in order(plan, CORE)
    assert "cap.2" in order(plan, CORE), "acme's pool is not exclusive"
    nothing_fits = plan_of(A, C, pool_match_scope="all_required", tenant_overrides=BOUND)
    assert "cap.3" not in order(nothing_fits, ["tone", "magic"]), "nor when no pool is meant for the job"
    only = plan_of(C, tenant_overrides=[TenantPool(tenant_id="vault", pool_id=3, exclusive=True)])
    assert only.order_for("s-1", "", CORE) == NOWHERE


def test_tenants_have_pools_in_hash_mode_too() -> None:
    plan = plan_of(pool_count=4, tenant_overrides=[TenantPool(tenant_id="acme", pool_id=3, exclusive=True)])
    assert plan.order_for("acme", "acme", CORE).order == ("hash.3",)
    assert set(order(plan, CORE)) == {"hash.0", "hash.1", "hash.2"}


def test_a_job_is_routed_by_its_tenant_else_by_its_session() -> None:
    plan = plan_of(pool_count=64)
    by_tenant = {order_of(job(session_id=f"s-{index}", tenant_id="acme"), plan).preferred for index in range(20)}
    by_session = {order_of(job(session_id=f"s-{index}", tenant_id=" "), plan).preferred for index in range(20)}
    assert len(by_tenant) == 1 and len(by_session) > 5


# --- choosing with pools ------------------------------------------------------------------------------------


def fleet(plan: PoolPlan, **nodes: Any) -> NodeTable:
    """A table of nodes, each in its home."""
    table = NodeTable(nodes_max=100)
    for node_id, changes in nodes.items():
        home = plan.home_of(node_id, caps(**changes))
        assert table.apply(0, 1, node_id, 0, NOW_MS, facts(in_pools=home, **changes))
    return table


def chosen(table: NodeTable, plan: PoolPlan, asked: Dispatch) -> str | None:
    row = int(pick(table, asked, plan=plan).rows[0, 0])
    return None if row == NO_ROW else table.id_of(row)


TIERS = (Pool(pool_id=1, required_services=CORE, region="eu"), Pool(pool_id=2, required_services=CORE, region="us"))


def test_the_first_pool_with_a_candidate_wins_and_the_next_one_helps_out() -> None:
    plan = plan_of(*TIERS)
    table = fleet(plan, europe={"region": "eu"}, america={"region": "us"})
    in_europe = job(region="eu")
    assert chosen(table, plan, in_europe) == "europe"
    choice = pick(table, in_europe, plan=plan)
    assert choice.rows[0].tolist() == [0, NO_ROW, NO_ROW] and choice.removed.sum() == 0
    assert table.pools.string(int(choice.pool[0])) == "cap.1"
    table.patch("europe", 4, 2)
    choice = pick(table, in_europe, plan=plan)
    assert table.id_of(int(choice.rows[0, 0])) == "america" and choice.removed[0, Filter.SLOT] == 1
    assert table.pools.string(int(choice.pool[0])) == "cap.2"
    table.patch("america", 4, 2)
    choice = pick(table, in_europe, plan=plan)
    assert removed_by_name(choice.removed[0]) == {"capacity_exceeded": 2} and choice.pool[0] == NO_POOL


def test_a_tenant_bound_job_never_leaves_its_pool_not_even_in_failover() -> None:
    plan = plan_of(*TIERS, tenant_overrides=[TenantPool(tenant_id="acme", pool_id=1)])
    table = fleet(plan, mine={"region": "eu"}, theirs={"region": "us"})
    mine = job(tenant_id="acme")
    assert chosen(table, plan, mine) == "mine"
    again = job(tenant_id="acme", attempt=2, excluded=["mine"], preferred_node="theirs", warm_node="theirs")
    choice = pick(table, again, plan=plan)
    assert choice.rows[0, 0] == NO_ROW
    assert removed_by_name(choice.removed[0]) == {"pool_not_eligible": 1, "excluded": 1}
    assert not job_rows([again], table, plan).jobs["barred"][0], "its own node may come back"


def test_an_exclusive_pool_takes_nobody_elses_job_not_even_a_paired_one() -> None:
    plan = plan_of(*TIERS, tenant_overrides=[TenantPool(tenant_id="vault", pool_id=1, exclusive=True)])
    table = fleet(plan, vault={"region": "eu"})
    choice = pick(table, job(preferred_node="vault"), plan=plan)
    assert removed_by_name(choice.removed[0]) == {"pool_not_eligible": 1}
    assert chosen(table, plan, job(tenant_id="vault")) == "vault"


def test_a_job_that_no_pool_will_ever_take_is_barred() -> None:
    plan = plan_of(A, strict_pool_eligibility=True)
    table = fleet(plan, n={})
    rows = job_rows([job(), job(services=["asr"])], table, plan)
    assert rows.jobs["barred"].tolist() == [1, 0]
    choice = pick(table, job(), plan=plan)
    assert removed_by_name(choice.removed[0]) == {"pool_not_eligible": 1}


def test_a_node_in_no_pool_gets_no_job() -> None:
    plan = plan_of(A, B)
    table = fleet(plan, lonely={"services_installed": ["tone"], "services_ready": ["tone"]})
    choice = pick(table, job(services=["tone"]), plan=plan)
    assert removed_by_name(choice.removed[0]) == {"pool_not_eligible": 1}


def test_paired_and_warm_node_of_a_later_pool_are_compared_with_the_first_one() -> None:
    plan = plan_of(*TIERS)
    table = fleet(plan, europe={"region": "eu"}, america={"region": "us"})
    choice = pick(table, job(region="eu", preferred_node="america"), plan=plan)
    assert [table.id_of(row) for row in choice.rows[0, :2]] == ["america", "europe"]
    assert chosen(table, plan, job(region="eu", warm_node="america")) == "europe", "80 ms away is worse than 50 ms warm"


def test_without_pools_nodes_that_are_still_listed_in_some_are_found() -> None:
    table = fleet(plan_of(pool_count=4), a={}, b={}, c={}, d={})
    assert len(set(table.columns.pool[:4].tolist())) > 1
    choice = pick(table, job(), best=4)
    assert choice.removed.sum() == 0 and choice.rows[0, 0] != NO_ROW
    full = [table.patch(node_id, 4, 2) for node_id in "abc"]
    assert all(full) and chosen(table, NO_POOLS, job()) == "d"


def test_the_index_follows_nodes_that_change_their_pool_or_leave() -> None:
    plan = plan_of(*TIERS)
    table = fleet(plan, a={"region": "eu"}, b={"region": "us"}, c={"region": "eu"})
    table.check()
    table.apply(0, 2, "a", 0, NOW_MS, facts(in_pools="cap.2", region="us", status="draining"))
    table.check()
    table.remove("b")
    table.check()
    starts = table.index().starts.tolist()
    sizes = {table.pools.string(pool): starts[pool + 1] - starts[pool] for pool in range(len(starts) - 1)}
    assert sizes == {"": 0, "cap.1": 1, "cap.2": 1}
    from_nothing_else = index_of(table.columns, len(table))
    assert from_nothing_else.members.tolist() == table.index().members.tolist()
