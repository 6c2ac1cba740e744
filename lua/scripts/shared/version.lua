-- version: versions of a cell, by which snapshots learn what changed.
-- A version is the time in microseconds, or the last version plus one if that is more: it grows even when a failover
-- has forgotten the last few, so a snapshot that is ahead of Redis misses nothing that happens next.

-- Marks the node as changed and returns the cell's new version, as a number and spelled out: Lua's own conversion
-- would keep 14 of its 16 digits. `last` is the ledger's '#version', and the caller writes the new one there.
local function bump(last, changes, node_id)
  local version = math.max((tonumber(last) or 0) + 1, now_us)
  local text = string.format('%.0f', version)
  redis.call('ZADD', changes, text, node_id)
  return version, text
end
