-- room_create: create a room with its first member, if the code is free. Idempotent for a creator that is a member.
-- USES room_members
-- KEYS
--   room            hash   the room's record
--   rooms           zset   time of the last speech in each room; one per cell
-- ARGV
--   code            text   the room's code
--   room_id         text   its id, if it is new
--   session_id      text   the creator
--   display_name    text   name of the member
--   preferred_lang  text   language of the member
--   rooms_max       int    maximum number of rooms per cell
-- RETURNS
--   verdict         text   ok | taken: the code is in use | crowded: the cell has `rooms_max` rooms
--   room_id         text   the room's id
--   version         int    grows with every change of its members
--   members         list   for each member: session, packed member

local found = read_room(room)
if found then
  if found.creator == session_id and found.members[session_id] then return room_reply('ok', found) end
  return room_reply('taken')
end
if redis.call('ZCARD', rooms) >= rooms_max then return room_reply('crowded') end
redis.call('HSET', room, 'room_id', room_id, 'creator', session_id, 'created_ms', now_text)
redis.call('ZADD', rooms, now_text, code)
local made = {room_id = room_id, members = {}, count = 0}
add_member(room, made, session_id, display_name, preferred_lang)
return room_reply('ok', made)
