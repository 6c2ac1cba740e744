-- change: versions of a cell, by which snapshots learn what changed.
-- A version is the time in microseconds, or the last version plus one if that is more: it grows even when a failover
-- has forgotten the last few, so a snapshot that is ahead of Redis misses nothing that happens next.

-- Marks the node as changed and returns the cell's new version. Numbers are spelled out because Lua's own
-- conversion would keep 14 digits of 16.
local function bump(ledger, changes, node_id)
  local last = tonumber(redis.call('HGET', ledger, '#version')) or 0
  local version = math.max(last + 1, now_us)
  local text = string.format('%.0f', version)
  redis.call('HSET', ledger, '#version', text)
  redis.call('ZADD', changes, text, node_id)
  return version
end
