-- request_bind: bind a request to its reserved slot: the commit point of node_reserve and request_bind. Idempotent.
-- USES binding
-- CONFIRMED
-- KEYS
--   binding   string binding of the request
-- ARGV
--   wanted    text   the binding: attempt, job, node, the node's edge, its epoch
--   job_id    text   its job
--   attempt   int    a higher one replaces the binding of a lower one
--   until_ms  int    expiry of the provisional lease; a later bind is refused
--   bound_ms  text   TTL of the binding
-- RETURNS
--   verdict   text   new | bound: to another job | late
--   bound     text   the binding in force

local bound = redis.call('GET', binding)
local in_force, bound_job = 0, ''
if bound then in_force, bound_job = read_binding(bound) end
-- The same job: the caller retries a bind whose reply was lost.
if bound_job ~= job_id then
  if in_force >= attempt then return {'bound', bound} end
  if now_ms >= until_ms then return {'late', ''} end
end
redis.call('SET', binding, wanted, 'PX', bound_ms)
return {'new', wanted}
