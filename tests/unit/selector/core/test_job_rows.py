from __future__ import annotations

import pytest

from mesh.frames import Dispatch
from selector.core.interner import UNKNOWN
from selector.core.job_rows import EXCLUDED_MAX, JobLanguages, job_languages, job_rows, seed_of
from selector.core.kernel import NO_ROW, NOT_ASKED
from tests.support.builders.selector import NO_POOLS, facts, job, table_of


@pytest.mark.parametrize(
    ("dispatch", "languages"),
    [
        (job(src_lang="en", tgt_lang="es"), JobLanguages("en>es", ("en",), ("es",), ("en>es",))),
        (job(src_lang="en", tgt_lang="EN"), JobLanguages("en>EN", ("en",), ("EN",), ())),
        (
            job(src_lang="auto", lang_a="en", lang_b="zh"),
            JobLanguages("auto>es", ("en", "zh"), ("en", "zh"), ("en>zh", "zh>en"), is_auto=True),
        ),
        (
            job(src_lang="auto", tgt_lang="es", auto_langs=["en", "zh"]),
            JobLanguages("auto>es", ("en", "zh"), ("es",), ("en>es", "zh>es"), is_auto=True),
        ),
        (job(src_lang="auto", tgt_lang="es"), JobLanguages("auto>es", (), ("es",), (), is_auto=True, is_any=True)),
    ],
)
def test_languages_of_a_job(dispatch: Dispatch, languages: JobLanguages) -> None:
    assert job_languages(dispatch) == languages


def test_strings_that_no_node_has_are_unknown_and_those_not_asked_for_are_not() -> None:
    table = table_of(("n", facts()))
    rows = job_rows([job(tenant_id="t", region="mars"), job(services=["asr", "magic"])], table, NO_POOLS)
    first, second = rows.jobs
    assert (first["tenant"], first["region"], first["tier"]) == (UNKNOWN, UNKNOWN, NOT_ASKED)
    assert (first["services_unknown"], second["services_unknown"]) == (0, 1)
    assert len(table.interners.tenants) == 1, "a job adds no string"


def test_excluded_and_rejected_nodes_are_listed_by_row_and_bounded() -> None:
    table = table_of(("a", facts()), ("b", facts()), ("c", facts()))
    strangers = [f"x{number}" for number in range(EXCLUDED_MAX)]
    rows = job_rows([job(excluded=["a", *strangers, "b"])], table, NO_POOLS, {"r-1": ["c", "gone"]})
    one = rows.jobs[0]
    excluded = rows.lists[one["excluded_from"] : one["excluded_to"]].tolist()
    assert excluded == [table.rows["a"], table.rows["c"]], "b is beyond the bound; unknown nodes have no row"


def test_preferred_nodes_that_are_unknown_have_no_row() -> None:
    rows = job_rows([job(preferred_node="n", warm_node="gone")], table_of(("n", facts())), NO_POOLS)
    assert (rows.jobs[0]["paired"], rows.jobs[0]["warm"]) == (0, NO_ROW)


def test_seed_differs_by_request_and_attempt_only() -> None:
    assert seed_of(job()) == seed_of(job(session_id="other", audio_ms=9))
    assert len({seed_of(job()), seed_of(job(attempt=2)), seed_of(job(request_id="r-2"))}) == 3
