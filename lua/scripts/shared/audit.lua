-- audit: the slots that are held, beside the jobs that a node says it runs.
-- USES lease

local AUDIT_ENDED = {FINISHED = true, RELEASED = true}

-- Gives a running job its slot for another `lease_ms`; returns 1 if it had lost it, where `used` of `slots` are in use.
-- A job without a record runs nonetheless: Redis lost it, not the node. No slot is sold twice for it.
local function keep_slot(job, leases, member, holder, used, slots, lease_ms, leases_ms)
  if redis.call('ZSCORE', leases, member) then
    redis.call('ZADD', leases, now_ms + lease_ms, member)
    return 0
  end
  if used >= slots then return 0 end
  local record = redis.call('HMGET', job, 'state', 'holder')
  if record[1] and (record[2] ~= holder or AUDIT_ENDED[record[1]]) then return 0 end
  return hold(leases, used, member, lease_ms, leases_ms) - used
end

-- Appends to `reply` each lease that no running job has, with its end; the caller names the job and asks again.
-- One younger than `grace_ms` may have crossed what the node said. One that ends within `provisional_ms` may be of a
-- request that is not bound yet, and is left to lapse.
local function held_for_nobody(leases, is_running, lease_ms, grace_ms, provisional_ms, reply)
  local old = redis.call('ZRANGEBYSCORE', leases, now_ms + provisional_ms + 1, now_ms + lease_ms - grace_ms, 'WITHSCORES')
  for i = 1, #old, 2 do
    if not is_running[old[i]] then
      reply[#reply + 1] = old[i]
      reply[#reply + 1] = tonumber(old[i + 1])
    end
  end
end
