-- session_look: who owns a session; reads only.
-- KEYS
--   session  hash   the session's record
-- RETURNS
--   owner    text   the edge, or nothing
--   epoch    int    the epoch in force

local record = redis.call('HMGET', session, 'owner', 'epoch')
return {record[1] or '', tonumber(record[2]) or 0}
