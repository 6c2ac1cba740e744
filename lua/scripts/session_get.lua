-- session_get: owner of a session and state of its client's connection; read-only.
-- KEYS
--   session    hash   record of the session
-- RETURNS
--   owner      text   the owner, or empty
--   epoch      int    the epoch in force
--   away       int    1: its client is detached
--   resumable  int    1: undelivered results go to its mail

local record = redis.call('HMGET', session, 'owner', 'epoch', 'away_ms', 'resumable')
return {record[1] or '', tonumber(record[2]) or 0, (record[3] or '0') ~= '0' and 1 or 0, tonumber(record[4]) or 0}
