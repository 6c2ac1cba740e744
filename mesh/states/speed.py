"""Executable specification of lua/scripts/shared/speed.lua, run by tests only: the speed of a node per language pair.

Speed is work time per time of audio, as mean and variance of the last few jobs. The Lua script learns it from finished
jobs; tests/lua compares both bit by bit. Production code uses `Speed`, ANY_PAIR and RATIO_MAX only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: The pair under which all jobs of a node count.
ANY_PAIR: Final = "*"
#: Upper bound of one job's ratio: a single absurd job must not keep its node without jobs for an hour.
RATIO_MAX: Final = 10


class Speed(NamedTuple):
    """Speed of one node for one pair."""

    #: Milliseconds of work per millisecond of audio.
    mean: float
    variance: float
    #: Weight in jobs; less than were learned from, because old ones fade.
    jobs: float
    #: When the last job was learned from.
    at_ms: int


def observe(speed: Speed | None, ratio: float, now_ms: int, jobs_remembered: int, half_life_ms: int = 60_000) -> Speed:
    """`speed` with one more job that took `ratio` times its audio.

    The new job counts at least one part in `jobs_remembered`, and more the less the old ones weigh: they count half
    after `half_life_ms`. So a node that recovered is not judged by old jobs.
    """
    if speed is None:
        return Speed(ratio, 0.0, 1.0, now_ms)
    faded = speed.jobs / (1 + max(0, now_ms - speed.at_ms) / half_life_ms)
    jobs = min(faded + 1, jobs_remembered)
    share = 1 / jobs
    off = ratio - speed.mean
    return Speed(speed.mean + share * off, (1 - share) * (speed.variance + share * off * off), jobs, now_ms)


def ratio_of(took_ms: int, audio_ms: int, audio_ms_min: int, failed_ms: int = 0) -> float:
    """Work time per time of audio of one job.

    With `failed_ms` for a failed job: another node must do it, so it counts as that much longer plus its audio's
    length. Otherwise a node that fails at once would look idle and fast, and attract all jobs.
    """
    audio_ms = max(audio_ms, audio_ms_min)
    took_ms += failed_ms + audio_ms if failed_ms else 0
    return min(took_ms, RATIO_MAX * audio_ms) / audio_ms
