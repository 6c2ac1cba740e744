-- session_release: forget a session, if owner and epoch are the ones in force.
-- KEYS
--   session   hash   the session's record
-- ARGV
--   edge      text   who releases
--   epoch     int    the epoch it was given
-- RETURNS
--   released  int    1: gone

local record = redis.call('HMGET', session, 'owner', 'epoch')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {0} end
redis.call('DEL', session)
return {1}
