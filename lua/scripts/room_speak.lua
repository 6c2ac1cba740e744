-- room_speak: a member speaks: resets the room's idle timeout; returns the listeners.
-- USES room_members
-- KEYS
--   room        hash   the room's record
--   rooms       zset   time of the last speech in each room; one per cell
-- ARGV
--   code        text   the room's code
--   session_id  text   the speaking session
-- RETURNS
--   verdict     text   ok | gone: no such room | outsider: session_id is no member
--   room_id     text   the room's id
--   version     int    grows with every change of its members
--   members     list   for each member: session, packed member

local found = read_room(room)
if not found then return room_reply('gone') end
if not found.members[session_id] then return room_reply('outsider') end
redis.call('ZADD', rooms, now_text, code)
return room_reply('ok', found)
