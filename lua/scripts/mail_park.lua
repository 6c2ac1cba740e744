-- mail_park: append an entry to the mail of a resumable session; deduplicated by name.
-- Beyond the bounds the oldest entries are evicted and counted.
-- KEYS
--   session      hash   record of the session
--   mail         stream undelivered entries of the session
--   mailed       hash   keys of the entries, for deduplication
-- ARGV
--   name         text   deduplication key
--   frame        bytes  the frame
--   body         bytes  payload of the frame
--   entries_max  int    maximum number of entries
--   bytes_max    int    maximum number of bytes
--   ttl_ms       text   TTL of the mail, renewed by each entry
-- RETURNS
--   verdict      text   parked | same: duplicate | no_session: no such session, or not resumable
--   dropped      int    evicted entries

local record = redis.call('HMGET', session, 'resumable', 'mail_count', 'mail_bytes')
if record[1] ~= '1' then return {'no_session', 0} end
-- Delete the mail of an earlier session with the same id.
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
