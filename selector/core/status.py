"""The status of a node, from what it says of itself."""

from __future__ import annotations

from typing import Final

from mesh.frames import NodeCaps

REGISTERING: Final = "registering"
READY: Final = "ready"
DEGRADED: Final = "degraded"

#: The services that make a node a translator; others are extras and never hold it back.
CORE_SERVICES: Final = frozenset({"asr", "nmt", "tts"})


def status_of(caps: NodeCaps, *, heard: bool) -> str:
    """`registering` until the first heartbeat; then `ready` if every core service it has installed is ready.

    A node that has no core service at all is degraded: there is nothing it could do.
    """
    if not heard:
        return REGISTERING
    installed = CORE_SERVICES & {service.lower() for service in caps.services_installed}
    ready = {service.lower() for service in caps.services_ready}
    return READY if installed and installed <= ready else DEGRADED
