-- room_join: add a session to a room, or update its name and language. Resets the room's idle timeout.
-- USES room_members
-- KEYS
--   room            hash   the room's record
--   rooms           zset   time of the last speech in each room; one per cell
-- ARGV
--   code            text   the room's code
--   session_id      text   the joining session
--   display_name    text   name of the member
--   preferred_lang  text   language of the member
--   members_max     int    maximum number of members
-- RETURNS
--   verdict         text   ok | gone: no such room | full
--   room_id         text   the room's id
--   version         int    grows with every change of its members
--   members         list   for each member: session, packed member

local found = read_room(room)
if not found then return room_reply('gone') end
if not found.members[session_id] and found.count >= members_max then return room_reply('full') end
add_member(room, found, session_id, display_name, preferred_lang)
redis.call('ZADD', rooms, now_text, code)
return room_reply('ok', found)
