-- room_expire: delete an idle room. Idempotent: of several callers exactly one gets `ended`.
-- USES room_members
-- KEYS
--   room       hash   the room's record
--   rooms      zset   time of the last speech in each room; one per cell
-- ARGV
--   code       text   the room's code
--   silent_ms  int    idle timeout of a room
-- RETURNS
--   verdict    text   ended | same: not idle, or deleted before
--   room_id    text   the room's id
--   version    int    grows with every change of its members
--   members    list   for each member at the end: session, packed member

local spoke_ms = tonumber(redis.call('ZSCORE', rooms, code))
if not spoke_ms or now_ms - spoke_ms < silent_ms then return room_reply('same') end
local found = read_room(room)
redis.call('DEL', room)
redis.call('ZREM', rooms, code)
return room_reply('ended', found)
