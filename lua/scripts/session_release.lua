-- session_release: forget a session and its mail, if owner and epoch are the ones in force.
-- KEYS
--   session   hash   the session's record
--   mail      stream what waits for the session
--   mailed    hash   what is in the mail
-- ARGV
--   edge      text   who releases
--   epoch     int    the epoch it was given
-- RETURNS
--   released  int    1: gone

local record = redis.call('HMGET', session, 'owner', 'epoch')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {0} end
redis.call('DEL', session, mail, mailed)
return {1}
