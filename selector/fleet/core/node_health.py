"""Health of a heartbeat. Its consequence for the node's status: mesh/states/node.py."""

from __future__ import annotations

from typing import Final

from mesh.frames import NodeCaps, NodeLoad

#: Services of the translation pipeline; others are optional and never make a node unhealthy.
CORE_SERVICES: Final = frozenset({"asr", "nmt", "tts"})


def is_healthy(caps: NodeCaps, load: NodeLoad, registering: bool) -> bool:
    """True if the node could work: a GPU, and services that are ready.

    While it registers it must have a core service, and every installed one must be ready: it must not start with half
    of its services. Later one ready service is enough, because jobs name the services that they need.
    """
    if caps.gpu_count < 1 or not 0 <= load.gpu_percent <= 100:  # NaN compares false
        return False
    ready = {service.lower() for service in caps.services_ready}
    if not registering:
        return bool(ready)
    core = CORE_SERVICES & {service.lower() for service in caps.services_installed}
    return bool(core) and core <= ready
