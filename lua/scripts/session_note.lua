-- session_note: a session lives, as its owner says; its record is renewed.
-- KEYS
--   session  hash   the session's record
-- ARGV
--   edge     text   who says so
--   epoch    int    the epoch it was given
--   away     int    1: the client's connection is lost
--   moves    int    1: the session is in another room, or in none any more
--   room     text   that room
--   ttl_ms   text   life of the record without another word
-- RETURNS
--   verdict  text   ok | taken: not by owner and epoch in force | gone: there is no record
--   owner    text   who owns it
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
