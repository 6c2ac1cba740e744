-- request_bind: bind a request to the slot that was reserved for it; this is the commit point of the pair.
-- CONFIRMED
-- KEYS
--   binding     hash   where the request is bound
-- ARGV
--   job_id      text   the job whose slot is reserved
--   node_id     text   its node
--   node_edge   text   the node's edge
--   node_epoch  int    the node's connection
--   attempt     int    a higher one replaces the binding of a lower one
--   until_ms    int    when the reserved slot lapses; a bind after that is refused
--   lease_ms    int    life of the binding
-- RETURNS
--   verdict     text   new | bound: to another job | late
--   job_id      text   the job in force
--   node_id     text   its node
--   node_edge   text   the node's edge
--   node_epoch  int    the node's connection
--   attempt     int    the attempt in force

local bound = redis.call('HMGET', binding, 'job', 'node', 'node_edge', 'node_epoch', 'attempt')
-- Our own job is no loss: the caller repeats a bind whose answer it did not get.
if bound[1] and bound[1] ~= job_id and tonumber(bound[5]) >= attempt then
  return {'bound', bound[1], bound[2], bound[3], tonumber(bound[4]), tonumber(bound[5])}
end
if bound[1] ~= job_id then
  if now_ms >= until_ms then return {'late', '', '', '', 0, 0} end
  redis.call('HSET', binding, 'job', job_id, 'node', node_id, 'node_edge', node_edge,
    'node_epoch', string.format('%.0f', node_epoch), 'attempt', attempt)
end
redis.call('PEXPIRE', binding, lease_ms)
return {'new', job_id, node_id, node_edge, node_epoch, attempt}
