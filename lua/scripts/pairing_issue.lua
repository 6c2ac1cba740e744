-- pairing_issue: choose and record the next code of a node; the caller revokes the one before. Rate-limited.
-- KEYS
--   node            hash   the node's record
--   pairing_asked   string codes issued in this window
--   pairing_latest  hash   latest request, its code and the code before it
-- ARGV
--   asker           text   the calling edge
--   serial          int    serial number of the request: a retry has the same, a later request a higher one
--   code            text   a new random code
--   instead_of      text   a chosen code that turned out to be taken, or empty
--   codes_max       int    maximum codes per window
--   window_ms       int    the window
--   ttl_ms          int    TTL of a code
-- RETURNS
--   verdict         text   ok | slow: too many in this window | late: an old duplicate | unknown: no such node
--   code            text   the code to use
--   earlier         text   the code before it, or empty
--   wait_ms         int    time until the next window, if slow

if not redis.call('HGET', node, 'last_seen_ms') then return {'unknown', '', '', 0} end
local latest = redis.call('HMGET', pairing_latest, 'asker', 'serial', 'code', 'earlier')
if latest[1] == asker and serial <= tonumber(latest[2]) then
  if serial < tonumber(latest[2]) then return {'late', '', '', 0} end
  if latest[3] ~= instead_of then return {'ok', latest[3], latest[4], 0} end
  redis.call('HSET', pairing_latest, 'code', code)
  return {'ok', code, latest[4], 0}
end

if tonumber(redis.call('GET', pairing_asked) or 0) >= codes_max then
  return {'slow', '', '', math.max(0, redis.call('PTTL', pairing_asked))}
end
if redis.call('INCR', pairing_asked) == 1 then redis.call('PEXPIRE', pairing_asked, window_ms) end
local earlier = latest[3] or ''
redis.call('HSET', pairing_latest, 'asker', asker, 'serial', string.format('%.0f', serial), 'code', code,
  'earlier', earlier)
redis.call('PEXPIRE', pairing_latest, ttl_ms)
return {'ok', code, earlier, 0}
