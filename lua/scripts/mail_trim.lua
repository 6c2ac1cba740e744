-- mail_trim: forget the mail of a session up to an entry, as its owner says; what was lost has been told by then.
-- KEYS
--   session  hash   the session's record
--   mail     stream what waits for the session
--   mailed   hash   what is in the mail
-- ARGV
--   edge     text   who says so
--   epoch    int    the epoch it was given
--   last_ms  int    time of the last entry that goes
--   last_no  int    its number within that time
-- RETURNS
--   trimmed  int    entries that went; -1: not by owner and epoch in force

local record = redis.call('HMGET', session, 'owner', 'epoch', 'mail_bytes')
if record[1] ~= edge or tonumber(record[2]) ~= epoch then return {-1} end
if not record[3] then return {0} end

local trimmed, bytes = 0, tonumber(record[3]) or 0
local waiting = redis.call('HGETALL', mailed)
for place = 1, #waiting, 2 do
  local ms, no, size = string.match(waiting[place + 1], '^(%d+)%-(%d+) (%d+)$')
  ms, no = tonumber(ms), tonumber(no)
  if ms < last_ms or (ms == last_ms and no <= last_no) then
    redis.call('HDEL', mailed, waiting[place])
    redis.call('XDEL', mail, string.format('%.0f-%.0f', ms, no))
    trimmed, bytes = trimmed + 1, bytes - size
  end
end
redis.call('HSET', session, 'mail_count', redis.call('XLEN', mail), 'mail_bytes', string.format('%.0f', bytes),
  'mail_lost', 0)
return {trimmed}
