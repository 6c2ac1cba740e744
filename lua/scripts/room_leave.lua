-- room_leave: take a session out of a room; the last one out ends the room. Who is not in it changes nothing.
-- USES room_members
-- KEYS
--   room        hash   the room's record
--   rooms       zset   when somebody spoke last in each room, of the cell
-- ARGV
--   code        text   the room's code
--   session_id  text   who leaves
-- RETURNS
--   verdict     text   ok | gone: there is no such room
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   session, member; for each who stays

local found = read_room(room)
if not found then return show_room('gone') end
if found.members[session_id] then unseat(room, found, session_id) end
if found.count == 0 then
  redis.call('DEL', room)
  redis.call('ZREM', rooms, code)
end
return show_room('ok', found)
