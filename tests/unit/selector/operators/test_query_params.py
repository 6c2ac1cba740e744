from __future__ import annotations

import pytest

from mesh.errors import ErrorCode
from selector.operators.core.query_params import AUDIO_MS, Params, QueryRefusal, simulated


def test_simulated_job_has_the_defaults_of_the_original() -> None:
    routing_key, job = simulated(Params({}), frozenset())
    assert (routing_key, job.src_lang, job.tgt_lang, job.public, job.services) == ("default", "zh", "en", True, [])
    assert (job.audio_ms, job.excluded) == (AUDIO_MS, [])
    given = {"required": ["ASR", "nmt,tts", "asr"], "exclude_node_id": ["Node-1"], "accept_public": ["false"]}
    _, job = simulated(Params(given), frozenset())
    assert (job.services, job.excluded, job.public) == (["asr", "nmt", "tts"], ["Node-1"], False)


@pytest.mark.parametrize(
    ("params", "key", "tenant"),
    [
        ({"routing_key": ["k"], "session_id": ["s"]}, "k", ""),
        ({"tenant_id": ["t"], "session_id": ["s"]}, "t", "t"),
        ({"session_id": ["s"]}, "s", ""),
        ({"routing_key": ["acme"]}, "acme", "acme"),
        ({"routing_key": ["k"], "tenant_id": ["acme"]}, "k", ""),
        ({"routing_key": ["t"], "tenant_id": ["t"]}, "t", "t"),
        ({"routing_key": ["acme"], "tenant_id": ["t"]}, "acme", "acme"),
    ],
)
def test_the_routing_key_is_named_or_the_tenant_or_the_session(
    params: dict[str, list[str]], key: str, tenant: str
) -> None:
    routing_key, job = simulated(Params(params), frozenset({"acme"}))
    assert (routing_key, job.tenant_id) == (key, tenant)


@pytest.mark.parametrize(
    "params",
    [
        {"accept_public": ["perhaps"]},
        {"audio_ms": ["-1"]},
        {"audio_ms": ["9" * 12]},
        {"audio_ms": ["٣"]},
        {"session_id": ["x" * 500]},
        {"required": [str(number) for number in range(99)]},
    ],
)
def test_malformed_parameter_is_refused(params: dict[str, list[str]]) -> None:
    with pytest.raises(QueryRefusal) as caught:
        simulated(Params(params), frozenset())
    assert (caught.value.status, caught.value.code) == (400, ErrorCode.INVALID_MESSAGE)


@pytest.mark.parametrize("text", ["", "{", '{"no_such": 1}', '{"busy": -5}', '{"strategy": "magic"}', "[]"])
def test_bad_weights_are_refused(text: str) -> None:
    with pytest.raises(QueryRefusal) as caught:
        Params({"weights": [text]}).weights()
    assert caught.value.status == 400
    assert caught.value.answer()["code"] == "INVALID_MESSAGE"


def test_good_weights_are_read_and_the_rest_has_its_default() -> None:
    weights = Params({"weights": ['{"busy": 2.5}']}).weights()
    assert (weights.busy, weights.warm_ms) == (2.5, 50.0)
