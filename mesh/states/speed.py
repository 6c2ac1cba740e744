"""How fast a node is for a language pair: time per time of audio, as mean and variance of the last few jobs.

Lua's twin is lua/scripts/shared/speed.lua, where finished jobs are learned from; a test compares them bit by bit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: In place of a pair: all jobs of the node.
ANY_PAIR: Final = "*"
#: Slower than that is all the same: one absurd job must not keep its node without work for an hour.
RATIO_MAX: Final = 10


class Speed(NamedTuple):
    """What is known of one node and one pair."""

    #: Milliseconds of work per millisecond of audio.
    mean: float
    variance: float
    #: How many jobs this is worth; less than there were, because old ones fade.
    jobs: float
    #: When the last one was learned.
    at_ms: int


def observe(speed: Speed | None, ratio: float, now_ms: int, jobs_remembered: int, half_life_ms: int = 60_000) -> Speed:
    """`speed` with one more job that took `ratio` times its audio.

    The new one counts one part in `jobs_remembered` at least, and more the less the old ones are worth: they count half
    after `half_life_ms`. So a node that recovered is not held to what it was like long ago.
    """
    if speed is None:
        return Speed(ratio, 0.0, 1.0, now_ms)
    faded = speed.jobs / (1 + max(0, now_ms - speed.at_ms) / half_life_ms)
    jobs = min(faded + 1, jobs_remembered)
    share = 1 / jobs
    off = ratio - speed.mean
    return Speed(speed.mean + share * off, (1 - share) * (speed.variance + share * off * off), jobs, now_ms)


def ratio_of(took_ms: int, audio_ms: int, audio_ms_min: int, failed_ms: int = 0) -> float:
    """What a job of that length says of its node.

    With `failed_ms`, one that failed: somebody else must do it again, so it counts as that much longer and as long as
    its audio. Otherwise a node that fails at once would look idle and fast, and draw all the work.
    """
    audio_ms = max(audio_ms, audio_ms_min)
    took_ms += failed_ms + audio_ms if failed_ms else 0
    return min(took_ms, RATIO_MAX * audio_ms) / audio_ms
