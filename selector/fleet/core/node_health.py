"""Whether a heartbeat is a healthy one. What follows from that for the node's status is in mesh/states/node.py."""

from __future__ import annotations

from typing import Final

from mesh.frames import NodeCaps, NodeLoad

#: The services that make a node a translator; others are extras and never hold it back.
CORE_SERVICES: Final = frozenset({"asr", "nmt", "tts"})


def is_healthy(caps: NodeCaps, load: NodeLoad, registering: bool) -> bool:
    """True if the node could work: a GPU, and services that are ready.

    While it registers it must have a core service, and every one that it has must be ready: it shall not begin with
    half of what it promised. Later any one that is ready will do, because jobs ask for the services that they need.
    """
    if caps.gpu_count < 1 or not 0 <= load.gpu_percent <= 100:  # what is no number compares false
        return False
    ready = {service.lower() for service in caps.services_ready}
    if not registering:
        return bool(ready)
    core = CORE_SERVICES & {service.lower() for service in caps.services_installed}
    return bool(core) and core <= ready
