-- room: may this node take a job now?
-- USES lease

-- Returns '' and the node's edge and epoch, or the reason why not. A job that holds a slot already has room.
local function room(node, leases, member, heartbeat_timeout_ms)
  local record = redis.call('HMGET', node, 'status', 'max_jobs', 'last_seen_ms', 'edge', 'epoch')
  if not record[1] or record[1] == 'offline' then return 'gone' end
  if record[1] ~= 'ready' then return 'not_ready' end
  if now_ms - tonumber(record[3]) > heartbeat_timeout_ms then return 'stale' end
  if is_full(leases, tonumber(record[2])) and not redis.call('ZSCORE', leases, member) then return 'full' end
  return '', record[4], record[5]
end
