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
--   ttl_ms       text   life of the mail without another letter
-- RETURNS
--   verdict      text   parked | same: it waits already | no_session: there is none, or nobody will resume it
--   dropped      int    entries that made room

local record = redis.call('HMGET', session, 'resumable', 'mail_count', 'mail_bytes')
if record[1] ~= '1' then return {'no_session', 0} end
-- What was left by an earlier session of that name is not this one's.
if not record[2] and redis.call('XLEN', mail) > 0 then redis.call('DEL', mail, mailed) end
if redis.call('HEXISTS', mailed, name) == 1 then return {'same', 0} end

local size = #name + #frame + #body
local id = redis.call('XADD', mail, '*', 'key', name, 'frame', frame, 'body', body)
redis.call('HSET', mailed, name, id .. ' ' .. size)
local count, bytes, dropped = redis.call('XLEN', mail), size, 0
if count > 1 then bytes = size + (tonumber(record[3]) or 0) end
while count > 0 and (count > entries_max or bytes > bytes_max) do
  local oldest = redis.call('XRANGE', mail, '-', '+', 'COUNT', 1)[1]
  local fields = oldest[2]
  redis.call('XDEL', mail, oldest[1])
  redis.call('HDEL', mailed, fields[2])
  count, bytes, dropped = count - 1, bytes - #fields[2] - #fields[4] - #fields[6], dropped + 1
end
redis.call('HSET', session, 'mail_count', count, 'mail_bytes', string.format('%.0f', bytes))
if dropped > 0 then redis.call('HINCRBY', session, 'mail_lost', dropped) end
redis.call('PEXPIRE', mail, ttl_ms)
redis.call('PEXPIRE', mailed, ttl_ms)
return {'parked', dropped}
