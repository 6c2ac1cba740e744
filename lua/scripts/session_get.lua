-- session_get: who owns a session, and whether its client is there; reads only.
-- KEYS
--   session    hash   the session's record
-- RETURNS
--   owner      text   the edge, or nothing
--   epoch      int    the epoch in force
--   away       int    1: its client's connection is lost
--   resumable  int    1: what it misses may wait in its mail

local record = redis.call('HMGET', session, 'owner', 'epoch', 'away_ms', 'resumable')
return {record[1] or '', tonumber(record[2]) or 0, (record[3] or '0') ~= '0' and 1 or 0, tonumber(record[4]) or 0}
