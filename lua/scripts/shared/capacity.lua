-- capacity: checks whether a node can take a job now.
-- USES lease

-- Returns '', slots in use, the node's edge and epoch; or the reason for refusal, with the slots in use if they are it.
-- A job that has a lease is accepted. `expected`: slots in use assumed by the selection, refused if more are; -1: any.
-- `counted`: optional, the number of the node's leases if the caller has counted them.
local function check_capacity(node, leases, member, expected, heartbeat_timeout_ms, counted)
  local record = redis.call('HMGET', node, 'status', 'max_jobs', 'last_seen_ms', 'edge', 'epoch')
  if not record[3] then return 'gone' end
  if record[1] == 'draining' then return 'draining' end
  if record[1] == 'offline' or now_ms - record[3] >= heartbeat_timeout_ms then return 'stale' end
  if record[1] ~= 'ready' then return 'not_ready' end
  local max_jobs = tonumber(record[2])
  local enough = max_jobs - 1
  if expected >= 0 and expected < enough then enough = expected end
  local used = slots_in_use(leases, enough, counted)
  if used > enough and not redis.call('ZSCORE', leases, member) then
    return used >= max_jobs and 'full' or 'moved', used
  end
  return '', used, record[4], record[5]
end
