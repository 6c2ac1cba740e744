from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.errors import PeerError
from mesh.messages.capabilities import InstalledService
from mesh.messages.node import NodeHeartbeatMessage, NodeRegisterMessage, decode_from_node, encode
from tests.support.builders.messages import FROM_NODE

by_type = {sample.type: sample.message for sample in FROM_NODE}


def register(**changes: Any) -> NodeRegisterMessage:
    message = decode_from_node(json.dumps({**by_type["node_register"], **changes}))
    assert isinstance(message, NodeRegisterMessage)
    return message


def heartbeat(**changes: Any) -> NodeHeartbeatMessage:
    message = decode_from_node(json.dumps({**by_type["node_heartbeat"], **changes}))
    assert isinstance(message, NodeHeartbeatMessage)
    return message


def test_unknown_service_types_are_kept_in_lower_case() -> None:
    kinds = ["asr", "ASR", "Phonetic", "punctuation", "teleport"]
    message = register(
        capability_by_type=[{"type": kind, "ready": True} for kind in kinds],
        installed_services=[{"service_id": "x", "type": kind, "device": "TPU", "status": "Odd"} for kind in kinds],
    )
    lower = [kind.lower() for kind in kinds]
    assert [capability.type for capability in message.capability_by_type or []] == lower
    assert [service.type for service in message.installed_services or []] == lower
    assert {(s.device, s.status) for s in message.installed_services or []} == {("tpu", "odd")}


def test_memory_may_be_a_float_and_an_integer_stays_one() -> None:
    hardware = {"cpu_cores": 8.0, "memory_gb": 31.8, "gpus": [{"name": "x", "memory_gb": 24}]}
    message = register(hardware=hardware)
    assert message.hardware.cpu_cores == 8
    assert json.loads(encode(message))["hardware"] == hardware
    assert '"memory_gb":24}' in encode(message)


@pytest.mark.parametrize("memory_gb", [-1, -0.5, 10**9, "32", None])
def test_memory_out_of_bounds_is_refused(memory_gb: Any) -> None:
    with pytest.raises(PeerError, match="memory_gb"):
        register(hardware={"cpu_cores": 8, "memory_gb": memory_gb})


def test_services_of_the_earliest_nodes_are_accepted() -> None:
    message = heartbeat(
        installed_services=[{"service_id": "m2m", "version": "1", "platform": "linux"}],
        capability_by_type=None,
        capability_state={"m2m": "ready"},
    )
    assert message.installed_services == [InstalledService(service_id="m2m", version="1")]
    assert message.capability_by_type is None


def test_missing_load_has_defaults() -> None:
    usage = heartbeat(resource_usage={"cpu_percent": None, "gpu_percent": None}).resource_usage
    assert (usage.cpu_percent, usage.gpu_percent, usage.mem_percent, usage.running_jobs) == (0, None, 0, 0)
