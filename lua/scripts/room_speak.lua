-- room_speak: a member speaks, which keeps the room alive; who is there to hear it.
-- USES room_members
-- KEYS
--   room        hash   the room's record
--   rooms       zset   when somebody spoke last in each room, of the cell
-- ARGV
--   code        text   the room's code
--   session_id  text   who speaks
-- RETURNS
--   verdict     text   ok | gone: there is no such room | outsider: who speaks is not in it
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   session, member; for each

local found = read_room(room)
if not found then return show_room('gone') end
if not found.members[session_id] then return show_room('outsider') end
redis.call('ZADD', rooms, now_text, code)
return show_room('ok', found)
