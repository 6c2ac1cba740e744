-- mail_read: a page of a session's mail, oldest first, for its owner; reads only.
-- KEYS
--   session      hash   the session's record
--   mail         stream what waits for the session
-- ARGV
--   edge         text   who asks
--   epoch        int    the epoch it was given
--   after        text   id of the last entry of the page before; nothing: from the beginning
--   entries_max  int    at most so many entries
--   bytes_max    int    and so many bytes, unless the first one alone has more
-- RETURNS
--   verdict      text   ok | taken: not by owner and epoch in force
--   last         text   id of the page's last entry, or nothing
--   more         int    1: there are more
--   parts        list   per entry: its frame, its payload

local record = redis.call('HMGET', session, 'owner', 'epoch', 'mail_count')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {'taken', '', 0} end
if not record[3] then return {'ok', '', 0} end

local reply, last, bytes = {'ok', '', 0}, after, 0
for place = 1, entries_max + 1 do
  -- One at a time: a page of many large ones must not be read to be left out.
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
