-- lease: the slots of a node, and how many are in use.
-- USES version

-- Drops lapsed leases and returns how many live.
local function live_leases(leases)
  redis.call('ZREMRANGEBYSCORE', leases, '-inf', now_text)
  return redis.call('ZCARD', leases)
end

-- How many slots are taken. Lapsed leases are dropped only when there are more than `enough`, because then they are in
-- the way: heartbeats drop the rest.
local function slots_in_use(leases, enough)
  local used = redis.call('ZCARD', leases)
  if used > enough then used = live_leases(leases) end
  return used
end

-- Holds a slot for `hold_ms`, where `used` are in use; returns how many are then.
-- A set that is new gets its life here, an old one has it from the last heartbeat. `leases_ms` is longer than a node
-- may be silent and a lease may last, so no set ends before its leases do.
local function hold(leases, used, member, hold_ms, leases_ms)
  local added = redis.call('ZADD', leases, now_ms + hold_ms, member)
  if used == 0 then redis.call('PEXPIRE', leases, leases_ms) end
  return used + added
end

-- Brings the ledger up to the slots in use; returns the version that says so, as a number and spelled out.
-- `is_news`: something else of the node changed, so it gets a new version even if the count is the same.
-- A node that is off the lists has no ledger entry and gets none: version 0.
local function settle(used, ledger, changes, node_id, is_news)
  local known = redis.call('HMGET', ledger, node_id, '#version')
  if not known[1] then return 0, '0' end
  if tonumber(known[1]) == used and not is_news then
    -- Its own version, not the cell's: a snapshot must not believe that it has seen what it has yet to read.
    local own = redis.call('ZSCORE', changes, node_id)
    return tonumber(own) or 0, own or '0'
  end
  local version, text = bump(known[2], changes, node_id)
  redis.call('HSET', ledger, node_id, used, '#version', text)
  return version, text
end
