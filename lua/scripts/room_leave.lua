-- room_leave: remove a session from a room; a room without members is deleted. Idempotent.
-- USES room_members
-- KEYS
--   room        hash   the room's record
--   rooms       zset   time of the last speech in each room; one per cell
-- ARGV
--   code        text   the room's code
--   session_id  text   the leaving session
-- RETURNS
--   verdict     text   ok | gone: no such room
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   for each remaining member: session, packed member

local found = read_room(room)
if not found then return room_reply('gone') end
if found.members[session_id] then remove_member(room, found, session_id) end
if found.count == 0 then
  redis.call('DEL', room)
  redis.call('ZREM', rooms, code)
end
return room_reply('ok', found)
