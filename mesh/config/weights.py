"""Weights: the prices of the score, in milliseconds. One set is in force in a deployment, versioned in Redis.

The configuration holds the first set (version 0). `lingua weights set FILE` puts another one in force everywhere, and a
recorded decision can be run again with yet another (`lingua replay`). What each term means: docs/choosing.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Price = Annotated[float, Meta(ge=0, le=600_000)]
#: A saving may be negative: then it is a price.
Saving = Annotated[float, Meta(ge=-600_000, le=600_000)]
Share = Annotated[float, Meta(ge=0, le=10)]


class Weights(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The prices by which nodes are compared; predicted milliseconds, lowest wins."""

    #: Fewest jobs wins with "least_connections"; everything below is then without effect.
    strategy: Annotated[str, Meta(pattern="^(predicted_ms|least_connections)$")] = "predicted_ms"
    #: How much longer a job takes on a node with every slot in use than on an idle one, as a share of its own time.
    busy: Share = 1.0
    #: The same for a node of unknown speed or a job without audio, and the least it costs.
    busy_ms: Price = 300.0
    #: For full cpu, gpu or memory; grows with the square, so that noise at rest costs nothing.
    load_ms: Price = 200.0
    #: Per second of age beyond the heartbeat interval; no cliff, only a slope.
    stale_ms_per_s: Price = 5.0
    #: Standard deviations of a node's speed that are added to its mean, beyond the spread that is chance.
    risk: Share = 0.5
    #: What is chance: speeds that differ from the fleet's by less than this share of it count as the same.
    speed_even: Share = 0.15
    #: What is assumed of a node that nobody knows, as a share of what the fleet needs: below 1 is optimistic.
    optimism: Share = 0.8
    #: Time per time of audio that is assumed while nothing at all is known.
    speed_unknown: Share = 0.3
    #: How many observations the assumption is worth.
    optimism_jobs: Annotated[float, Meta(ge=0.01, le=1_000)] = 1.0
    #: An observation counts half after so many seconds.
    speed_half_life_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    #: What is saved on the node that had the session's last utterance.
    warm_ms: Saving = 50.0
    #: What is saved on the node that the session is paired with.
    paired_ms: Saving = 5_000.0
    #: For a node in another region than asked for, or of another GPU tier.
    region_ms: Price = 80.0
    tier_ms: Price = 150.0
    #: For a node whose socket closed a moment ago and may come back.
    detached_ms: Price = 2_000.0
