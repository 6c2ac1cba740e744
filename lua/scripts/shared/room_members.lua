-- room_members: members of a room. Each is one field of the record, packed: number, time, name, language, voices.

local MEMBER = 'm:'

-- Returns the room's own fields, `members` (session -> packed) and their `count`; nil if there is no room.
local function read_room(room)
  local fields = redis.call('HGETALL', room)
  if #fields == 0 then return nil end
  local found = {members = {}, count = 0}
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, #MEMBER) == MEMBER then
      found.members[string.sub(fields[i], #MEMBER + 1)] = fields[i + 1]
      found.count = found.count + 1
    else
      found[fields[i]] = fields[i + 1]
    end
  end
  return found
end

-- Versions order the member lists: of two lists the one with the higher version is newer.
local function next_room_version(room, found)
  found.version = redis.call('HINCRBY', room, 'version', 1)
end

-- Writes one member to Redis and to `found`.
local function write_member(room, found, session_id, member)
  local packed = cmsgpack.pack(member)
  redis.call('HSET', room, MEMBER .. session_id, packed)
  next_room_version(room, found)
  found.members[session_id] = packed
end

-- Adds a session; a member keeps its number and gets the new name and language.
local function add_member(room, found, session_id, display_name, preferred_lang)
  local packed = found.members[session_id]
  local member = packed and cmsgpack.unpack(packed) or {redis.call('HINCRBY', room, 'came', 1), now_ms, '', '', {}}
  member[3], member[4] = display_name, preferred_lang
  write_member(room, found, session_id, member)
end

-- Removes a session and the others' voice settings for it.
local function remove_member(room, found, session_id)
  redis.call('HDEL', room, MEMBER .. session_id)
  next_room_version(room, found)
  found.members[session_id] = nil
  found.count = found.count - 1
  for other, packed in pairs(found.members) do
    local member = cmsgpack.unpack(packed)
    if member[5][session_id] ~= nil then
      member[5][session_id] = nil
      write_member(room, found, other, member)
    end
  end
end

-- The reply of every script about a room.
local function room_reply(verdict, found)
  local reply = {verdict, found and found.room_id or '', found and tonumber(found.version) or 0}
  for session_id, packed in pairs(found and found.members or {}) do
    reply[#reply + 1] = session_id
    reply[#reply + 1] = packed
  end
  return reply
end
