-- session_note: renew the record of a live session, for its owner.
-- KEYS
--   session  hash   record of the session
-- ARGV
--   edge     text   the calling edge
--   epoch    int    the caller's epoch
--   away     int    1: its client is detached
--   moves    int    1: store `room`
--   room     text   room of the session, or empty
--   ttl_ms   text   TTL of the record
-- RETURNS
--   verdict  text   ok | taken: the caller is not the owner with the epoch in force | gone: no record
--   owner    text   the owner
--   epoch    int    the epoch in force

local record = redis.call('HMGET', session, 'owner', 'epoch', 'away_ms')
local owner, current = record[1], tonumber(record[2]) or 0
if not owner then return {'gone', '', 0} end
if owner ~= edge or current ~= epoch then return {'taken', owner, current} end

local away_ms = '0'
if away == 1 then
  away_ms = record[3] or '0'
  if away_ms == '0' then away_ms = now_text end
end
redis.call('HSET', session, 'seen_ms', now_text, 'away_ms', away_ms)
if moves == 1 then redis.call('HSET', session, 'room', room) end
redis.call('PEXPIRE', session, ttl_ms)
return {'ok', owner, current}
