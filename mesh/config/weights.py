"""Weights: the cost terms of node selection, in predicted milliseconds. Versioned in Redis, one set per deployment.

The configuration holds the first set (version 0). `lingua weights set FILE` replaces it in the whole deployment, and
`lingua replay` runs recorded decisions with another set. docs/choosing.md defines each term.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Price = Annotated[float, Meta(ge=0, le=600_000)]
#: A negative saving is a price.
Saving = Annotated[float, Meta(ge=-600_000, le=600_000)]
Share = Annotated[float, Meta(ge=0, le=10)]


class Weights(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Weights of the score by which nodes are compared: predicted milliseconds until the result, lowest wins."""

    #: Score: predicted milliseconds, or with least_connections the slots in use alone; the weights below then have no
    #: effect.
    strategy: Annotated[str, Meta(pattern="^(predicted_ms|least_connections)$")] = "predicted_ms"
    #: Additional time of a job on a node with all slots in use, as a share of the job's own time. Higher spreads more.
    busy: Share = 1.0
    #: Minimum of that additional time; counts alone for a node of unknown speed or a job without audio.
    busy_ms: Price = 300.0
    #: Cost of full CPU, GPU or memory. Grows with the square of the load, so that noise at rest costs nothing.
    load_ms: Price = 200.0
    #: Cost per second of a heartbeat's age beyond node.heartbeat_interval_ms.
    stale_ms_per_s: Price = 5.0
    #: Standard deviations of a node's speed that are added to its mean. Higher prefers steady nodes.
    risk: Share = 0.5
    #: Spread that counts as chance: speeds that differ from the fleet's by less than this share are equal.
    speed_even: Share = 0.15
    #: Assumed speed of an unknown node, as a share of the fleet's. Below 1 new nodes are tried early.
    optimism: Share = 0.8
    #: Assumed work time per time of audio while no node's speed is known.
    speed_unknown: Share = 0.3
    #: Number of jobs that the assumption counts as. Higher learns a node's own speed more slowly.
    optimism_jobs: Annotated[float, Meta(ge=0.01, le=1_000)] = 1.0
    #: Age at which the observed speed of a node counts half as much.
    speed_half_life_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    #: Saving on the node that ran the session's last utterance.
    warm_ms: Saving = 50.0
    #: Saving on the node that the session is paired with. Higher than the other weights, so that it wins while it is
    #: usable.
    paired_ms: Saving = 5_000.0
    #: Cost of a node in another region than the session asks for.
    region_ms: Price = 80.0
    #: Cost of a node of another GPU tier than the session asks for.
    tier_ms: Price = 150.0
    #: Cost of a detached node: its socket closed, and it may reconnect within edge.reconnect_grace_ms.
    detached_ms: Price = 2_000.0
