-- lease: the slots of a node, and how many are in use.
-- USES change

-- Drops lapsed leases and returns how many live.
local function live_leases(leases)
  redis.call('ZREMRANGEBYSCORE', leases, '-inf', now_ms)
  return redis.call('ZCARD', leases)
end

-- True if every slot is taken. Lapsed leases are dropped only when they are in the way: heartbeats drop the rest.
local function is_full(leases, max_jobs)
  return redis.call('ZCARD', leases) >= max_jobs and live_leases(leases) >= max_jobs
end

-- Holds a slot for `hold_ms`. The set itself lives `keep_ms`, longer than any lease in it.
local function hold(leases, member, hold_ms, keep_ms)
  redis.call('ZADD', leases, now_ms + hold_ms, member)
  redis.call('PEXPIRE', leases, keep_ms)
end

-- Brings the ledger up to the leases; returns the slots in use and the version that says so.
-- A node that is off the lists has no ledger entry and gets none: version 0.
local function settle(leases, ledger, changes, node_id)
  local used = redis.call('ZCARD', leases)
  local known = redis.call('HMGET', ledger, node_id, node_id .. '#v', '#version')
  if not known[2] then return used, 0 end
  if tonumber(known[1]) == used then return used, tonumber(known[3]) end
  local version, text = bump(known[3], changes, node_id)
  redis.call('HSET', ledger, node_id, used, '#version', text)
  return used, version
end
