-- room_reserve_code: reserve the code of a session's next room. Idempotent: a retry creates the same room.
-- KEYS
--   room_plan   string the reserved code
-- ARGV
--   code        text   a new random code, used if none is reserved
--   instead_of  text   a reserved code that turned out to be taken, or empty
--   life_ms     text   TTL of the reservation
-- RETURNS
--   planned     text   the code

local planned = redis.call('GET', room_plan)
if planned and planned ~= instead_of then return {planned} end
redis.call('SET', room_plan, code, 'PX', life_ms)
return {code}
