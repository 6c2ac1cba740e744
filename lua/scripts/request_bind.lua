-- request_bind: bind a request to the slot that was reserved for it; this is the commit point of the pair.
-- USES binding
-- CONFIRMED
-- KEYS
--   binding   string where the request is bound
-- ARGV
--   wanted    text   the binding: attempt, job, node, the node's edge, its epoch
--   job_id    text   its job
--   attempt   int    a higher one replaces the binding of a lower one
--   until_ms  int    when the reserved slot lapses; a bind after that is refused
--   bound_ms  text   life of the binding
-- RETURNS
--   verdict   text   new | bound: to another job | late
--   bound     text   the binding in force

local bound = redis.call('GET', binding)
local in_force, bound_job = 0, ''
if bound then in_force, bound_job = read_binding(bound) end
-- Our own job is no loss: the caller repeats a bind whose answer it did not get.
if bound_job ~= job_id then
  if in_force >= attempt then return {'bound', bound} end
  if now_ms >= until_ms then return {'late', ''} end
end
redis.call('SET', binding, wanted, 'PX', bound_ms)
return {'new', wanted}
