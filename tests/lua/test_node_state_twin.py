"""The state of a node in Lua and in Python: both take the same random walks, times and all."""

from __future__ import annotations

import random
from pathlib import Path

from mesh.states.node import UNREGISTERED as NOBODY
from mesh.states.node import EventDetail, NodeEvent, NodeLimits, NodeState, Status, due_ms, step
from tests.lua.conftest import RedisClient
from tests.support.reference import lua_functions

WALKS, STEPS = 60, 100
T = 1_700_000_000_000
WALK = """-- walk: take a node through events at given times.
-- USES node_state
-- KEYS
--   node                  hash  the node's record
-- ARGV
--   health_checks         int   limit
--   warmup_timeout_ms     int   limit
--   failure_window        int   limit
--   failures_max          int   limit
--   failures_in_row_max   int   limit
--   heartbeat_timeout_ms  int   limit
--   reconnect_grace_ms    int   limit
--   record_ttl_ms         int   limit
-- ARGV per step
--   event                 text  what happens
--   time_ms               int   when
--   reason                text  what is said of it
--   until_ms              int   end of a drain
-- RETURNS
--   states                list  after each step

local limits = {health_checks = health_checks, warmup_timeout_ms = warmup_timeout_ms, failure_window = failure_window,
  failures_max = failures_max, failures_in_row_max = failures_in_row_max, heartbeat_timeout_ms = heartbeat_timeout_ms,
  reconnect_grace_ms = reconnect_grace_ms, record_ttl_ms = record_ttl_ms}
local states = {}
for _, step in ipairs(steps) do
  local state = read_node_state(node)
  node_state_step(state, step.event, step.time_ms, limits, step.reason, step.until_ms)
  write_node_state(node, state)
  state = read_node_state(node)
  states[#states + 1] = {state.status, state.reason, state.registered_ms, state.seen_ms, state.heard, state.detached_ms,
    state.drain_until_ms, node_state_due_ms(state, limits)}
end
return states
"""


def a_walk(dice: random.Random) -> tuple[NodeLimits, list[tuple[NodeEvent, int, EventDetail]]]:
    """Limits of one walk and its steps. Times are picked so that every limit is met exactly, missed and passed."""
    limits = NodeLimits(
        dice.randint(1, 4),
        dice.choice([50, 60_000]),
        dice.randint(1, 6),
        dice.randint(1, 4),
        dice.randint(1, 4),
        45_000,
        3_000,
        dice.choice([90_000, 3_600_000]),
    )
    jumps = [0, 1, 500, *(limit + off for limit in limits[5:] for off in (-1, 0, 1)), limits.warmup_timeout_ms]
    weights = {
        NodeEvent.REGISTER: 2,
        NodeEvent.HEALTHY: 6,
        NodeEvent.UNHEALTHY: 6,
        NodeEvent.TIME: 5,
        NodeEvent.DETACH: 1,
        NodeEvent.LEAVE: 1,
    }
    events = list(NodeEvent)
    now_ms, steps = T, []
    for event in dice.choices(events, [weights.get(event, 1) for event in events], k=STEPS):
        now_ms += dice.choice(jumps) if dice.random() < 0.4 else dice.randint(0, 10_000)
        steps.append(
            (event, now_ms, EventDetail(dice.choice(["", "closed", "why%20not"]), now_ms + dice.randint(0, 60_000)))
        )
    return limits, steps


def test_lua_and_python_agree_on_every_step(raw: RedisClient, tmp_path: Path) -> None:
    script = lua_functions.script_of(tmp_path, "walk", WALK)
    seen = set()
    for seed in range(WALKS):
        limits, steps = a_walk(random.Random(seed))
        args = limits._asdict() | {
            "steps": [
                {"event": str(event), "time_ms": now_ms, "reason": said.reason, "until_ms": said.until_ms}
                for event, now_ms, said in steps
            ]
        }
        [states] = lua_functions.run(raw, script, [f"{{walk}}:{seed}"], args)
        state = NOBODY
        for place, (event, now_ms, said) in enumerate(steps):
            before, state = state, step(state, event, now_ms, limits, said)
            status, reason, *numbers = states[place]
            found = NodeState(
                Status(status.decode()), reason.decode(), *numbers[:2], numbers[2].decode(), *numbers[3:5]
            )
            assert found == state, f"seed {seed}, step {place}: {before} + {event} at {now_ms} with {limits}"
            assert numbers[5] == due_ms(state, limits)
            seen.add((before.status, event, state.status))
    assert len(seen) > 40, "the walks went everywhere"
