-- mail_park: put something into the mail of a session that can be resumed; what is there already is not added again.
-- The oldest entries make room, and are counted.
-- KEYS
--   session      hash   the session's record
--   mail         stream what waits for the session
--   mailed       hash   what is in the mail
-- ARGV
--   name         text   by which a repeat is recognised
--   frame        bytes  the frame
--   body         bytes  its payload
--   entries_max  int    at most so many entries
--   bytes_max    int    and so many bytes
-- RETURNS
--   verdict      text   parked | same: it waits already | no_session: there is none, or nobody will resume it
--   dropped      int    entries that made room

local record = redis.call('HMGET', session, 'resumable', 'mail_bytes')
if record[1] ~= '1' then return {'no_session', 0} end
if redis.call('HEXISTS', mailed, name) == 1 then return {'same', 0} end

local size = #name + #frame + #body
local id = redis.call('XADD', mail, '*', 'key', name, 'frame', frame, 'body', body)
redis.call('HSET', mailed, name, id .. ' ' .. size)
local entries, bytes, dropped = redis.call('XLEN', mail), (tonumber(record[2]) or 0) + size, 0
while entries > 0 and (entries > entries_max or bytes > bytes_max) do
  local oldest = redis.call('XRANGE', mail, '-', '+', 'COUNT', 1)[1]
  local fields = oldest[2]
  redis.call('XDEL', mail, oldest[1])
  redis.call('HDEL', mailed, fields[2])
  entries, bytes, dropped = entries - 1, bytes - #fields[2] - #fields[4] - #fields[6], dropped + 1
end
redis.call('HSET', session, 'mail_bytes', string.format('%.0f', bytes))
if dropped > 0 then redis.call('HINCRBY', session, 'mail_lost', dropped) end
-- All three end together.
local left_ms = redis.call('PTTL', session)
if left_ms > 0 then
  redis.call('PEXPIRE', mail, left_ms)
  redis.call('PEXPIRE', mailed, left_ms)
end
return {'parked', dropped}
