-- room_join: put a session into a room; one that is in it already gets another name and language. Keeps the room alive.
-- USES room_members
-- KEYS
--   room            hash   the room's record
--   rooms           zset   when somebody spoke last in each room, of the cell
-- ARGV
--   code            text   the room's code
--   session_id      text   who joins
--   display_name    text   its name
--   preferred_lang  text   what it wants to hear
--   members_max     int    members that a room may have
-- RETURNS
--   verdict         text   ok | gone: there is no such room | full
--   room_id         text   the room's id
--   version         int    grows with every change of its members
--   members         list   session, member; for each

local found = read_room(room)
if not found then return show_room('gone') end
if not found.members[session_id] and found.count >= members_max then return show_room('full') end
seat(room, found, session_id, display_name, preferred_lang)
redis.call('ZADD', rooms, now_text, code)
return show_room('ok', found)
