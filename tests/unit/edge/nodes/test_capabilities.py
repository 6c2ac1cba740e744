from __future__ import annotations

import json
from typing import Any

import pytest

from edge.nodes.core import capabilities
from mesh.config.jobs import NodeConfig
from mesh.config.scheduler import ModelsConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import NodeCaps, NodeLoad
from mesh.messages.node import NodeHeartbeatMessage, NodeRegisterMessage, decode_from_node
from tests.support.builders.messages import FROM_NODE

LIMITS = NodeConfig(max_jobs_default=4, max_jobs_limit=16)
by_type = {sample.type: sample.message for sample in FROM_NODE}


def caps(**changes: Any) -> NodeCaps:
    message = decode_from_node(json.dumps({**by_type["node_register"], **changes}))
    assert isinstance(message, NodeRegisterMessage)
    return capabilities.caps_from(message, LIMITS)


def heartbeat(**fields: Any) -> NodeHeartbeatMessage:
    usage = {"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0}
    base = {"type": "node_heartbeat", "node_id": "n", "timestamp": 1, "resource_usage": usage}
    message = decode_from_node(json.dumps({**base, **fields}))
    assert isinstance(message, NodeHeartbeatMessage)
    return message


def refusal(**changes: Any) -> PeerError:
    with pytest.raises(PeerError) as caught:
        caps(**changes)
    return caught.value


def test_full_registration_is_flattened() -> None:
    assert caps() == NodeCaps(
        version="2.0.0",
        platform="windows",
        cpu_cores=8,
        memory_gb=32.0,
        gpu_count=1,
        gpu_memory_gb=24.0,
        services_installed=["asr"],
        services_ready=["asr"],
        asr_langs=["en", "zh"],
        semantic_langs=["en", "es"],
        tts_langs=["es"],
        accept_public=True,
        max_jobs=8,
        region="eu",
        gpu_tier="high",
        tenant_id="acme",
        models=["whisper-large"],
        pairs=["en>es"],
    )


@pytest.mark.parametrize("gpus", [None, []])
def test_node_without_a_gpu_is_refused(gpus: Any) -> None:
    error = refusal(hardware={"cpu_cores": 8, "memory_gb": 16, "gpus": gpus})
    assert error.code is ErrorCode.NO_GPU_AVAILABLE


@pytest.mark.parametrize("version", [None, "1.0", "", "20.1", "3"])
def test_another_capability_schema_is_refused(version: Any) -> None:
    assert refusal(capability_schema_version=version).code is ErrorCode.INVALID_CAPABILITY_SCHEMA


@pytest.mark.parametrize("version", ["2.0", "2", "2.1"])
def test_any_capability_schema_of_major_2_is_accepted(version: str) -> None:
    assert caps(capability_schema_version=version) == caps()


def test_registration_without_capabilities_by_type_is_refused_as_an_old_schema() -> None:
    assert refusal(capability_by_type=None).code is ErrorCode.INVALID_CAPABILITY_SCHEMA


@pytest.mark.parametrize("missing", ["asr_languages", "semantic_languages"])
def test_asr_and_semantic_languages_are_mandatory(missing: str) -> None:
    langs = {"asr_languages": ["en"], "semantic_languages": ["es"], missing: []}
    error = refusal(language_capabilities=langs)
    assert error.code is ErrorCode.MISSING_LANG_CAPABILITIES
    assert error.details == {"missing": [missing]}


def test_spelling_of_languages_and_services_does_not_matter() -> None:
    langs = {"asr_languages": [" EN ", "en", ""], "semantic_languages": ["zh-CN"]}
    flat = caps(
        language_capabilities=langs,
        installed_services=[{"service_id": "x", "type": "NMT", "device": "gpu", "status": "running"}],
        capability_by_type=[{"type": "ASR", "ready": True}, {"type": "tts", "ready": False}],
    )
    assert (flat.asr_langs, flat.semantic_langs) == (["en"], ["zh-cn"])
    assert (flat.services_installed, flat.services_ready) == (["asr", "nmt"], ["asr"])


def test_capability_types_count_as_installed_without_a_list_of_services() -> None:
    flat = caps(
        installed_services=None,
        capability_by_type=[{"type": "asr", "ready": True}, {"type": "phonetic", "ready": False}],
    )
    assert flat.services_installed == ["asr", "phonetic"]


@pytest.mark.parametrize(("asked", "given"), [(None, 4), (0, 1), (1, 1), (16, 16), (10_000, 16)])
def test_max_jobs_is_that_of_the_node_within_the_limit(asked: Any, given: int) -> None:
    assert caps(max_concurrent_jobs=asked).max_jobs == given


def test_heartbeat_without_changes_keeps_the_same_caps() -> None:
    before = caps()
    same = heartbeat(
        capability_by_type=[{"type": "Asr", "ready": True}],
        language_capabilities={"asr_languages": ["zh", "en"]},
    )
    assert capabilities.caps_after(before, heartbeat()) is before
    assert capabilities.caps_after(before, same) is before


def test_heartbeat_changes_readiness_services_and_languages() -> None:
    after = capabilities.caps_after(
        caps(),
        heartbeat(
            capability_by_type=[{"type": "asr", "ready": False}, {"type": "nmt", "ready": True}],
            installed_services=[{"service_id": "x", "type": "asr", "device": "gpu", "status": "error"}],
            language_capabilities={"asr_languages": ["fr"], "semantic_languages": []},
        ),
    )
    assert (after.services_ready, after.services_installed) == (["nmt"], ["asr", "nmt"])
    assert (after.asr_langs, after.semantic_langs) == (["fr"], ["en", "es"])


@pytest.mark.parametrize(
    ("usage", "load"),
    [
        ({"cpu_percent": 12.5, "gpu_percent": 30, "mem_percent": 40, "running_jobs": 2}, NodeLoad(12.5, 30.0, 40.0, 2)),
        (
            {"cpu_percent": -5, "gpu_percent": 1e30, "mem_percent": 101, "running_jobs": -3},
            NodeLoad(0.0, 100.0, 100.0, 0),
        ),
        (
            {"cpu_percent": 0, "gpu_mem_percent": 99, "mem_percent": 0, "running_jobs": 10**15},
            NodeLoad(running_jobs=10**6),
        ),
        ({}, NodeLoad()),
    ],
)
def test_load_is_clamped(usage: dict[str, Any], load: NodeLoad) -> None:
    assert capabilities.load_from(heartbeat(resource_usage=usage)) == load


def test_tenant_must_be_an_id() -> None:
    assert caps(tenant_id=None).tenant_id == "" == caps(tenant_id="").tenant_id
    assert refusal(tenant_id="{c01}").code is ErrorCode.INVALID_ID


def test_models_are_those_that_are_enabled_and_their_number_is_bounded() -> None:
    models = [
        {"model_id": name, "kind": "other", "version": "1", "enabled": enabled}
        for name, enabled in (("b", True), (" a ", None), ("off", False), ("b", True), (" ", None))
    ]
    assert caps(installed_models=models).models == ["a", "b"]
    many = [{"model_id": f"m{number}", "kind": "other", "version": "1"} for number in range(400)]
    assert len(caps(installed_models=many).models) == capabilities.MODELS_MAX


def test_heartbeat_changes_models_and_pairs_and_keeps_missing_fields() -> None:
    before = caps()
    models = [{"model_id": "new", "kind": "other", "version": "1"}]
    after = capabilities.caps_after(before, heartbeat(installed_models=models))
    assert (after.models, after.pairs, after.tenant_id) == (["new"], ["en>es"], "acme")
    assert capabilities.caps_after(before, heartbeat(installed_models=[])).models == []
    pairs = [{"src": "zh", "tgt": "en"}]
    said: dict[str, Any] = {"semantic_languages": ["en", "es"], "supported_language_pairs": pairs}
    after = capabilities.caps_after(before, heartbeat(language_capabilities=said))
    assert (after.pairs, after.models, after.asr_langs) == (["zh>en"], ["whisper-large"], ["en", "zh"])
    del said["semantic_languages"]
    after = capabilities.caps_after(before, heartbeat(language_capabilities=said))
    assert (after.semantic_langs, after.pairs) == (["en"], []), "the targets of the pairs are all it translates to"


def test_service_type_is_that_of_the_node_else_configured() -> None:
    message = heartbeat(
        installed_services=[
            {"service_id": "whisper", "type": "ASR"},
            {"service_id": "piper-tts", "type": "tone"},
            {"service_id": "old", "version": "1"},
        ],
        capability_by_type=[{"type": "nmt", "ready": True, "ready_impl_ids": ["m2m", "whisper"]}],
    )
    types = capabilities.service_types(message.installed_services, message.capability_by_type, ModelsConfig())
    assert types == {"whisper": "asr", "m2m": "nmt", "node-inference": "asr", "nmt-m2m100": "nmt", "piper-tts": "tone"}
    assert capabilities.service_types(None, None, ModelsConfig())["piper-tts"] == "tts"
