-- version: versions of a cell, by which snapshots find changed nodes.
-- A version is the time in microseconds, or the last version plus one if that is higher: it increases even if a
-- failover lost the last few, so a snapshot that is ahead of Redis misses no later change.

-- Marks the node as changed; returns the cell's new version, as number and text: Lua's own conversion
-- keeps 14 of its 16 digits. `last` is the ledger's '#version', and the caller writes the new one there.
local function next_version(last, changes, node_id)
  local version = math.max((tonumber(last) or 0) + 1, now_us)
  local text = string.format('%.0f', version)
  redis.call('ZADD', changes, text, node_id)
  return version, text
end
