-- room_reserve_code: the code under which a session's room is made. Whoever repeats the request makes the same room.
-- KEYS
--   room_plan   string the code that was planned
-- ARGV
--   code        text   a code to plan, if none is
--   instead_of  text   a planned code that turned out to be taken, or nothing
--   life_ms     text   life of the plan
-- RETURNS
--   planned     text   the code

local planned = redis.call('GET', room_plan)
if planned and planned ~= instead_of then return {planned} end
redis.call('SET', room_plan, code, 'PX', life_ms)
return {code}
