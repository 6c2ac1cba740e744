-- room: may this node take a job now?
-- USES lease

-- Returns '', the slots in use, the node's edge and epoch; or the reason why not. A job that holds a slot has room.
local function room(node, leases, member, heartbeat_timeout_ms)
  local record = redis.call('HMGET', node, 'status', 'max_jobs', 'last_seen_ms', 'edge', 'epoch')
  if not record[1] or record[1] == 'offline' then return 'gone' end
  if record[1] ~= 'ready' then return 'not_ready' end
  if now_ms - record[3] > heartbeat_timeout_ms then return 'stale' end
  local used, is_full = slots_in_use(leases, tonumber(record[2]))
  if is_full and not redis.call('ZSCORE', leases, member) then return 'full' end
  return '', used, record[4], record[5]
end
