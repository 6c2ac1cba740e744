-- audit: compares a node's leases with the running jobs that it reports.
-- USES lease

local ENDED_STATES = {FINISHED = true, RELEASED = true}

-- Renews a running job's lease for `lease_ms`; returns 1 if it was lost and is restored. `used` of `slots` are in use.
-- A job without a record counts as running: Redis lost the record, not the node. No slot is assigned twice for it.
local function renew_lease(job, leases, member, holder, used, slots, lease_ms, leases_ms)
  if redis.call('ZSCORE', leases, member) then
    redis.call('ZADD', leases, now_ms + lease_ms, member)
    return 0
  end
  if used >= slots then return 0 end
  local record = redis.call('HMGET', job, 'state', 'holder')
  if record[1] and (record[2] ~= holder or ENDED_STATES[record[1]]) then return 0 end
  return add_lease(leases, used, member, lease_ms, leases_ms) - used
end

-- Appends each lease without a running job to `reply`, with its expiry; the caller then calls lease_audit for its job.
-- Skipped: leases younger than `grace_ms` (the report may be older), and leases that expire within `provisional_ms`
-- (provisional ones: the request may not be bound yet).
local function append_orphaned_leases(leases, is_running, lease_ms, grace_ms, provisional_ms, reply)
  local old = redis.call('ZRANGEBYSCORE', leases, now_ms + provisional_ms + 1, now_ms + lease_ms - grace_ms,
    'WITHSCORES')
  for i = 1, #old, 2 do
    if not is_running[old[i]] then
      reply[#reply + 1] = old[i]
      reply[#reply + 1] = tonumber(old[i + 1])
    end
  end
end
