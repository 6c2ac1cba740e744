-- room_get: who is in a room; reads only.
-- USES room_members
-- KEYS
--   room     hash   the room's record
-- RETURNS
--   verdict  text   ok | gone: there is no such room
--   room_id  text   the room's id
--   version  int    grows with every change of its members
--   members  list   session, member; for each

local found = read_room(room)
return show_room(found and 'ok' or 'gone', found)
