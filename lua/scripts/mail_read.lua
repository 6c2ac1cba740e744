-- mail_read: one page of a session's mail, oldest first, for its owner; read-only.
-- KEYS
--   session      hash   record of the session
--   mail         stream undelivered entries of the session
-- ARGV
--   edge         text   the calling edge
--   epoch        int    the caller's epoch
--   after        text   id of the last entry of the page before; empty: from the beginning
--   entries_max  int    maximum number of entries
--   bytes_max    int    maximum number of bytes; the first entry is always returned
-- RETURNS
--   verdict      text   ok | taken: the caller is not the owner with the epoch in force
--   last         text   id of the page's last entry, or empty
--   more         int    1: more entries follow
--   parts        list   per entry: its frame, its payload

local record = redis.call('HMGET', session, 'owner', 'epoch', 'mail_count')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {'taken', '', 0} end
if not record[3] then return {'ok', '', 0} end

local reply, last, bytes = {'ok', '', 0}, after, 0
for place = 1, entries_max + 1 do
  -- One at a time: entries beyond `bytes_max` must not be read.
  local entry = redis.call('XRANGE', mail, last == '' and '-' or '(' .. last, '+', 'COUNT', 1)[1]
  if not entry then break end
  local frame, body = entry[2][4], entry[2][6]
  bytes = bytes + #frame + #body
  if place > entries_max or (place > 1 and bytes > bytes_max) then
    reply[3] = 1
    break
  end
  last = entry[1]
  reply[2] = last
  reply[#reply + 1], reply[#reply + 2] = frame, body
end
return reply
