-- mail_trim: delete the mail of a session up to an entry, for its owner; resets the count of lost entries.
-- KEYS
--   session  hash   record of the session
--   mail     stream undelivered entries of the session
--   mailed   hash   keys of the entries, for deduplication
-- ARGV
--   edge     text   the calling edge
--   epoch    int    the caller's epoch
--   last_ms  int    timestamp of the last entry to delete
--   last_no  int    its sequence number
-- RETURNS
--   trimmed  int    deleted entries; -1: the caller is not the owner with the epoch in force

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
