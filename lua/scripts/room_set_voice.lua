-- room_set_voice: whether a member wants to hear another one's own voice.
-- USES room_members
-- KEYS
--   room        hash   the room's record
-- ARGV
--   session_id  text   who wants it, or not
--   target      text   whose voice
--   wanted      int    1: it does
-- RETURNS
--   verdict     text   ok | gone: there is no such room | outsider: who asks is not in it | stranger: the other is not
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   session, member; for each

local found = read_room(room)
if not found then return show_room('gone') end
if not found.members[session_id] then return show_room('outsider') end
if not found.members[target] then return show_room('stranger') end
local member = cmsgpack.unpack(found.members[session_id])
member[5][target] = wanted == 1
write_member(room, found, session_id, member)
return show_room('ok', found)
