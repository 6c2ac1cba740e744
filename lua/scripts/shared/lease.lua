-- lease: leases: the slots of a node in use, and their count in the ledger.
-- USES version

-- Drops expired leases; returns the number of live ones.
local function count_live_leases(leases)
  redis.call('ZREMRANGEBYSCORE', leases, '-inf', now_text)
  return redis.call('ZCARD', leases)
end

-- Slots in use. Expired leases are dropped only when there are more than `enough`, because only then they matter:
-- heartbeats drop the rest. `counted`: optional, the number of leases if the caller has counted them.
local function slots_in_use(leases, enough, counted)
  local used = counted or redis.call('ZCARD', leases)
  if used > enough then used = count_live_leases(leases) end
  return used
end

-- Leases a slot for `lease_ms`, where `used` are in use; returns the number in use afterwards.
-- A new set gets its TTL here, an existing one has it from the last heartbeat. `leases_ms` is longer than the heartbeat
-- timeout plus a lease, so no set expires before its leases.
local function add_lease(leases, used, member, lease_ms, leases_ms)
  local added = redis.call('ZADD', leases, now_ms + lease_ms, member)
  if used == 0 then redis.call('PEXPIRE', leases, leases_ms) end
  return used + added
end

-- Writes the slots in use to the ledger; returns the node's version, as number and text.
-- `has_changed`: other facts of the node changed, so it gets a new version even if the count is equal. `has_speeds`:
-- its speeds are among them. An unlisted node has no ledger entry and gets none: version 0.
local function update_ledger(used, ledger, changes, node_id, has_changed, has_speeds)
  local known = redis.call('HMGET', ledger, node_id, '#version')
  if not known[1] then return 0, '0' end
  if tonumber(known[1]) == used and not has_changed then
    -- The node's version, not the cell's: a snapshot must not skip changes that it has not read.
    local own = redis.call('ZSCORE', changes, node_id)
    return tonumber(own) or 0, own or '0'
  end
  local version, text = next_version(known[2], changes, node_id)
  if has_speeds then
    redis.call('HSET', ledger, node_id, used, '#version', text, node_id .. '#s', text)
  else
    redis.call('HSET', ledger, node_id, used, '#version', text)
  end
  return version, text
end
