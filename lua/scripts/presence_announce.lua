-- presence_announce: renew the presence of a live process. The process repeats it before the TTL ends.
-- KEYS
--   present        zset   expiry of every announced process
--   presence       hash   record of the process
-- ARGV
--   name           text   kind and identity
--   host           text   host name
--   pid            text   process id
--   version        text   software version
--   started_at_ms  text   start time, wall clock
--   counts         text   its counters, as JSON
--   ttl_ms         int    TTL of the record
-- RETURNS
--   new            int    1: the record is new

local fields = redis.call('HSET', presence, 'host', host, 'pid', pid, 'version', version,
  'started_at_ms', started_at_ms, 'counts', counts)
redis.call('PEXPIRE', presence, ttl_ms)
redis.call('ZREMRANGEBYSCORE', present, '-inf', now_text)
redis.call('ZADD', present, now_ms + ttl_ms, name)
return {fields > 0 and 1 or 0}
