-- room_expire: end a room in which nobody spoke for long. Many may ask; it ends once, and only its cause is told of it.
-- USES room_members
-- KEYS
--   room       hash   the room's record
--   rooms      zset   when somebody spoke last in each room, of the cell
-- ARGV
--   code       text   the room's code
--   silent_ms  int    how long is long
-- RETURNS
--   verdict    text   ended | same: somebody spoke after all, or ended it before
--   room_id    text   the room's id
--   version    int    grows with every change of its members
--   members    list   session, member; for each who was in it

local spoke_ms = tonumber(redis.call('ZSCORE', rooms, code))
if not spoke_ms or now_ms - spoke_ms < silent_ms then return show_room('same') end
local found = read_room(room)
redis.call('DEL', room)
redis.call('ZREM', rooms, code)
return show_room('ended', found)
