-- room_create: make a room with its first member, if the code is free. Who made it, and is in it, gets the same again.
-- USES room_members
-- KEYS
--   room            hash   the room's record
--   rooms           zset   when somebody spoke last in each room, of the cell
-- ARGV
--   code            text   the room's code
--   room_id         text   its id, if it is new
--   session_id      text   who makes it
--   display_name    text   its name
--   preferred_lang  text   what it wants to hear
--   rooms_max       int    rooms that the cell may have
-- RETURNS
--   verdict         text   ok | taken: somebody else has the code | crowded: the cell has no room for a room
--   room_id         text   the room's id
--   version         int    grows with every change of its members
--   members         list   session, member; for each

local found = read_room(room)
if found then
  if found.creator == session_id and found.members[session_id] then return show_room('ok', found) end
  return show_room('taken')
end
if redis.call('ZCARD', rooms) >= rooms_max then return show_room('crowded') end
redis.call('HSET', room, 'room_id', room_id, 'creator', session_id, 'created_ms', now_text)
redis.call('ZADD', rooms, now_text, code)
local made = {room_id = room_id, members = {}, count = 0}
seat(room, made, session_id, display_name, preferred_lang)
return show_room('ok', made)
