-- room_get: members of a room; read-only.
-- USES room_members
-- KEYS
--   room     hash   the room's record
-- RETURNS
--   verdict  text   ok | gone: no such room
--   room_id  text   the room's id
--   version  int    grows with every change of its members
--   members  list   for each member: session, packed member

local found = read_room(room)
return room_reply(found and 'ok' or 'gone', found)
