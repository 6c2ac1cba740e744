from __future__ import annotations

import random

import numpy as np

from mesh.states.speed import Speed
from selector.core.interner import UNKNOWN
from selector.core.kernel import NO_ROW, Columns
from selector.core.node_table import NodeTable
from tests.support.builders.selector import NOW_MS, facts, job, pick, table_of


def test_an_older_delta_never_undoes_a_newer_commit() -> None:
    table = table_of(("n", facts()))
    assert table.patch("n", 3, version=9)
    assert not table.apply(0, 8, "n", 0, NOW_MS, None)
    assert table.used_of("n") == 3
    assert table.apply(0, 9, "n", 3, NOW_MS, None)
    assert table.apply(0, 10, "n", 1, NOW_MS, None)
    assert table.used_of("n") == 1


def test_facts_are_written_though_a_newer_commit_told_the_load() -> None:
    table = table_of(("n", facts()))
    table.patch("n", 3, version=9)
    assert table.apply(0, 8, "n", 0, NOW_MS - 1, facts(status="draining"))
    assert (table.used_of("n"), table.facts_of("n").status) == (3, "draining")
    assert not table.apply(0, 7, "n", 0, NOW_MS, facts(status="ready")), "older than the facts that we have"
    assert table.facts_of("n").status == "draining"
    assert table.patch("n", 2, version=9), "the load is as new as it was"
    assert not table.patch("n", 1, version=8)


def test_tenants_whose_names_differ_by_case_only_are_two() -> None:
    table = table_of(("n", facts(tenant_id="Acme", accept_public=False)))
    assert pick(table, job(tenant_id="acme", public=False)).rows[0][0] == NO_ROW
    assert pick(table, job(tenant_id="Acme", public=False)).rows[0][0] == 0


def test_an_older_commit_never_undoes_a_newer_delta() -> None:
    table = table_of(("n", facts()))
    table.apply(0, 9, "n", 3, NOW_MS, None)
    assert not table.patch("n", 1, version=8)
    assert table.used_of("n") == 3


def test_an_older_delta_does_not_remove_a_node_that_came_back() -> None:
    table = table_of(("n", facts()))
    table.apply(0, 9, "n", 0, NOW_MS, facts(epoch=2))
    assert not table.apply(0, 8, "n", -1, NOW_MS, None)
    assert "n" in table.rows


def test_a_counter_that_went_back_is_believed_after_forgetting() -> None:
    table = table_of(("n", facts()))
    table.patch("n", 3, version=900)
    table.forget_versions(0)
    assert table.apply(0, 2, "n", 1, NOW_MS, None)
    assert table.used_of("n") == 1


def test_a_change_without_facts_of_an_unknown_node_is_left_to_the_next_full_reload() -> None:
    table = NodeTable(nodes_max=4)
    assert not table.apply(0, 1, "n", 1, NOW_MS, None)
    assert len(table) == 0


def test_drift_is_what_the_last_audit_of_each_node_found() -> None:
    table = table_of(("a", facts()), ("b", facts()))
    table.set_drift("a", 3)
    table.set_drift("b", 1)
    assert table.drift() == 4
    table.set_drift("a", 0)
    assert table.drift() == 1
    table.remove("b")
    assert table.drift() == 0


def test_an_edge_is_avoided_for_all_its_nodes_until_they_connect_again() -> None:
    table = table_of(("a", facts()), ("b", facts()), ("c", facts(edge="edge:c:1")))
    assert table.avoid_edge("edge:b:1", NOW_MS + 100) == 2
    assert [table.is_avoided(name, NOW_MS + 99) for name in ("a", "b", "c", "nobody")] == [True, True, False, False]
    assert not table.is_avoided("a", NOW_MS + 100)
    table.apply(0, 2, "a", 0, NOW_MS, facts(epoch=2))
    assert not table.is_avoided("a", NOW_MS)


def test_patching_an_unknown_node_or_with_no_number_does_nothing() -> None:
    table = table_of(("n", facts()))
    assert not table.patch("other", 1, 5)
    assert not table.patch("n", -1, 5)


def test_a_full_table_turns_nodes_away_and_counts_them() -> None:
    table = NodeTable(nodes_max=100)
    for index in range(150):
        table.apply(0, 1, f"n{index}", 0, NOW_MS, facts())
        table.check()
    assert (len(table), table.refused) == (100, 50)
    table.remove("n0")
    assert table.apply(0, 2, "n149", 0, NOW_MS, facts())


def test_rows_survive_growth_and_removal() -> None:
    seed = 20_260_101
    chance = random.Random(seed)
    table = NodeTable(nodes_max=500)
    truth: dict[str, tuple[int, int]] = {}
    for step in range(3_000):
        node_id = f"n{chance.randrange(400)}"
        if chance.random() < 0.35:
            table.apply(0, step, node_id, -1, 0, None)
            truth.pop(node_id, None)
        else:
            used, most = chance.randrange(5), chance.randrange(1, 9)
            table.apply(0, step, node_id, used, step, facts(max_jobs=most))
            truth[node_id] = (used, most)
        table.check()
    assert {table.id_of(row) for row in range(len(table))} == set(truth), f"seed {seed}"
    for node_id, (used, most) in truth.items():
        row = table.rows[node_id]
        assert (table.columns.used[row], table.columns.max_jobs[row]) == (used, most), f"seed {seed}"
    assert "never" not in table.rows


def test_absurd_numbers_from_a_node_are_clipped() -> None:
    table = table_of(("n", facts(max_jobs=10**30, gpu_count=-5)))
    assert table.columns.max_jobs[0] == 2**31 - 1
    assert table.columns.gpus[0] == 0


def test_nodes_of_one_cell() -> None:
    table = NodeTable(nodes_max=4)
    table.apply(1, 1, "a", 0, NOW_MS, facts())
    table.apply(2, 1, "b", 0, NOW_MS, facts())
    assert list(table.ids_in(1)) == ["a"]


def test_a_language_beyond_the_bound_matches_nothing_and_is_counted() -> None:
    table = NodeTable(nodes_max=4)
    table.apply(0, 1, "n", 0, NOW_MS, facts(asr_langs=[f"l{index}" for index in range(300)], semantic_langs=[]))
    assert len(table.interners.languages) == 256
    table.check()
    assert table.interners.languages.refused == 44
    assert table.interners.languages.find("l255") == 255
    assert table.interners.languages.find("l256") == UNKNOWN


def test_a_node_with_a_long_list_takes_nothing_away_for_good() -> None:
    table = NodeTable(nodes_max=4)
    table.apply(0, 1, "greedy", 0, NOW_MS, facts(asr_langs=[f"l{index}" for index in range(300)]))
    table.apply(0, 1, "n", 0, NOW_MS, facts(asr_langs=["en"], semantic_langs=["es"]))
    assert table.interners.languages.find("en") == UNKNOWN
    table.remove("greedy")
    assert len(table.interners.languages) == 0
    # What did not fit is tried again with the node's next words, though its capabilities are the same.
    table.apply(0, 2, "n", 0, NOW_MS, facts(asr_langs=["en"], semantic_langs=["es"]))
    assert (
        UNKNOWN not in (table.interners.languages.find("en"), table.interners.languages.find("es"))
        and len(table.interners.languages) == 2
    )
    table.check()


def test_other_capabilities_give_the_old_words_back() -> None:
    table = table_of(("n", facts(asr_langs=["en"], semantic_langs=["es"], services_installed=["asr", "magic"])))
    table.apply(0, 2, "n", 0, NOW_MS, facts(asr_langs=["fr"], semantic_langs=["es"], services_installed=["asr"]))
    assert table.interners.languages.find("en") == UNKNOWN and len(table.interners.languages) == 2
    assert table.interners.services.find("magic") == UNKNOWN


def test_services_that_jobs_ask_for_always_have_a_number() -> None:
    table = table_of(("n", facts(services_installed=[f"s{index}" for index in range(100)])))
    assert table.interners.services.refused > 0
    table.apply(0, 1, "m", 0, NOW_MS, facts(services_installed=["punctuation"], services_ready=["asr", "tone"]))
    row, find = table.rows["m"], table.interners.services.find
    assert table.columns.installed[row] == 1 << find("punctuation")
    assert table.columns.ready[row] == 1 << find("asr") | 1 << find("tone")
    table.remove("n")
    table.remove("m")
    assert len(table.interners.services) == 7


def test_a_job_never_matches_through_a_number_that_another_word_had() -> None:
    table = table_of(("n", facts(asr_langs=["en"], semantic_langs=["es"])))
    assert pick(table, job(src_lang="en", tgt_lang="es")).rows[0][0] == 0
    table.remove("n")
    table.apply(0, 2, "m", 0, NOW_MS, facts(asr_langs=["xx"], semantic_langs=["yy"]))
    assert pick(table, job(src_lang="en", tgt_lang="es")).rows[0][0] == NO_ROW


# --- marks, models, pairs, what was written -----------------------------------------------------------------


def test_marks_stop_a_node_until_their_time_is_over() -> None:
    table = table_of(("n", facts()), ("m", facts()))
    assert table.set_marks("n", {"NMT": NOW_MS + 10, "tts": NOW_MS + 20, "nobody-has-it": NOW_MS + 30})
    assert not table.set_marks("stranger", {"nmt": NOW_MS})
    assert table.columns.marked[0] == 1 << table.interners.services.find("nmt") | 1 << table.interners.services.find(
        "tts"
    )
    assert table.expire_marks(NOW_MS + 10) == 1
    assert table.columns.marked[0] == 1 << table.interners.services.find("tts")
    assert table.marks_of("n") == {"tts": NOW_MS + 20, "nobody-has-it": NOW_MS + 30}
    assert table.expire_marks(NOW_MS + 99) == 2
    assert table.columns.marked[0] == 0 and table.expire_marks(NOW_MS + 99) == 0


def test_marks_follow_their_node_and_hold_for_what_it_has() -> None:
    table = table_of(("first", facts()), ("n", facts(services_installed=["asr", "magic"])))
    table.set_marks("n", {"magic": NOW_MS + 10})
    assert table.columns.marked[1] == 1 << table.interners.services.find("magic")
    table.remove("first")  # the last row moves
    assert table.columns.marked[0] == 1 << table.interners.services.find("magic")
    # The node loses the service, its number goes to another word, and that word is not marked.
    table.apply(0, 2, "n", 0, NOW_MS, facts(services_installed=["asr", "other"]))
    assert table.columns.marked[0] == 0
    table.apply(0, 3, "n", 0, NOW_MS, facts(services_installed=["asr", "magic"]))
    assert table.columns.marked[0] == 1 << table.interners.services.find("magic"), "it is still believed"
    table.remove("n")
    assert table.expire_marks(NOW_MS + 99) == 0


def test_nodes_cannot_fill_the_services_with_models() -> None:
    table = NodeTable(nodes_max=4, interned=["wanted"])
    table.apply(0, 1, "n", 0, NOW_MS, facts(models=[*(f"m{index}" for index in range(500)), "Wanted", "asr"]))
    assert len(table.interners.services) == 8 and table.interners.services.refused == 0
    assert table.columns.installed[0] & (1 << table.interners.services.find("wanted"))
    table.apply(0, 2, "n", 0, NOW_MS, facts(models=["asr"], services_installed=[], services_ready=[]))
    assert table.columns.installed[0] == 0, "a model that is called like a service is none"


def test_named_pairs_are_bounded_per_node_and_given_back() -> None:
    table = table_of(("n", facts(pairs=[f"a{index}>b" for index in range(5_000)])))
    assert len(table.interners.pairs) == 256 and table.columns.pairs_named[0]
    table.apply(0, 2, "n", 0, NOW_MS, facts())
    assert len(table.interners.pairs) == 0 and not table.columns.pairs_named[0] and not table.columns.pairs[0].any()


def test_a_recording_hears_of_every_row_that_was_written() -> None:
    table = table_of(("a", facts()), ("b", facts(edge="edge:c:1")), ("c", facts()))
    assert table.take_written().rows == [0, 1, 2] and table.take_written() == ([], [], [])
    table.saturate("c")
    assert table.take_written().rows == [2]
    table.avoid_edge("edge:c:1", NOW_MS)
    assert table.take_written().rows == [1]
    table.set_speeds("a", {"*": Speed(0.5, 0.0, 1.0, NOW_MS)})
    assert table.take_written().rows == [0]
    table.set_marks("c", {"asr": NOW_MS})
    assert table.take_written().rows == [2]
    table.expire_marks(NOW_MS)
    assert table.take_written().rows == [2]
    table.remove("a")
    assert table.take_written().rows == [0], "the last row took its place"
    assert table.ids() == ["c", "b"]


def test_a_recording_hears_of_single_values_without_their_rows() -> None:
    table = table_of(("a", facts()), ("b", facts()))
    table.take_written()
    table.patch("b", 2, 2)
    table.learn_speeds("a", {"*": Speed(0.5, 0.1, 1.0, NOW_MS)}, 5)
    assert table.expect_release("b") and not table.expect_release("a") and not table.expect_release("nobody")
    rows, loads, speeds = table.take_written()
    assert (rows, loads, speeds) == ([], [(1, 2), (1, 1)], [(0, 0, 0, 0.5, 0.1, 1.0, NOW_MS + 5)])
    for _ in range(5_000):
        table.patch("b", 1, 2)
    rows, loads, _ = table.take_written()
    assert rows == [1] and len(loads) < 2_000, "bounded"


def test_an_expected_release_that_did_not_happen_is_undone() -> None:
    table = table_of(("a", facts()), used=2)
    assert table.expect_release("a") and table.used_of("a") == 1
    table.undo_release("a")
    table.undo_release("nobody")
    assert table.used_of("a") == 2
    assert table.expect_release("a") and table.patch("a", 3, 9) and table.used_of("a") == 3


def test_words_have_another_version_after_a_string_came_or_went() -> None:
    table = table_of(("a", facts()))
    versions = [table.words_version()]
    table.apply(0, 2, "b", 0, NOW_MS, facts(asr_langs=["fi"]))
    versions.append(table.words_version())
    table.remove("b")
    versions.append(table.words_version())
    table.learn_speeds("a", {"fi>sv": Speed(0.5, 0.1, 1.0, NOW_MS)})
    versions.append(table.words_version())
    assert len(set(versions)) == 4
    table.patch("a", 1, 3)
    assert table.words_version() == versions[-1]


def test_the_snapshot_version_is_the_highest_seen() -> None:
    table = table_of(("a", facts()))
    table.apply(0, 7, "a", 0, NOW_MS, None)
    table.patch("a", 1, 9)
    table.apply(0, 8, "a", 0, NOW_MS, None)
    assert table.version == 9


def test_a_new_node_inherits_nothing_from_the_row_it_gets() -> None:
    table = table_of(("old", facts(pairs=["en>es"], in_pools="hash.3", detached_ms=5, tts_langs=["en"])))
    table.set_speeds("old", {"en>es": Speed(0.5, 0.0, 1.0, NOW_MS)})
    table.set_marks("old", {"asr": NOW_MS + 1})
    table.remove("old")
    table.apply(0, 9, "new", 0, NOW_MS, facts())
    fresh = table_of(("new", facts()))
    for name in Columns._fields:
        ours, theirs = getattr(table.columns, name)[0], getattr(fresh.columns, name)[0]
        assert np.array_equal(ours, theirs), name
    table.check()
