-- room_set_voice: set whether a member wants another member's own voice.
-- USES room_members
-- KEYS
--   room        hash   the room's record
-- ARGV
--   session_id  text   the listening member
--   target      text   the speaking member
--   wanted      int    1: wanted
-- RETURNS
--   verdict     text   ok | gone: no such room | outsider: session_id is no member | stranger: target is no member
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   for each member: session, packed member

local found = read_room(room)
if not found then return room_reply('gone') end
if not found.members[session_id] then return room_reply('outsider') end
if not found.members[target] then return room_reply('stranger') end
local member = cmsgpack.unpack(found.members[session_id])
member[5][target] = wanted == 1
write_member(room, found, session_id, member)
return room_reply('ok', found)
