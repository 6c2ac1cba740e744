-- session_release: delete a session and its mail, if owner and epoch are in force. Idempotent.
-- KEYS
--   session   hash   record of the session
--   mail      stream undelivered entries of the session
--   mailed    hash   keys of the entries, for deduplication
-- ARGV
--   edge      text   the calling edge
--   epoch     int    the caller's epoch
-- RETURNS
--   released  int    1: deleted

local record = redis.call('HMGET', session, 'owner', 'epoch')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {0} end
redis.call('DEL', session, mail, mailed)
return {1}
