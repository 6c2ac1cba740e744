-- presence_announce: a process lives; it says so again before this lapses.
-- KEYS
--   present        zset   every process that announced itself
--   presence       hash   the process
-- ARGV
--   name           text   its kind and identity
--   host           text   where it runs
--   pid            text   its process id there
--   version        text   of its software
--   started_at_ms  text   its wall clock when it began
--   counts         text   what it counts, as JSON
--   ttl_ms         int    life of the record without another word
-- RETURNS
--   new            int    1: there was none

local fields = redis.call('HSET', presence, 'host', host, 'pid', pid, 'version', version,
  'started_at_ms', started_at_ms, 'counts', counts)
redis.call('PEXPIRE', presence, ttl_ms)
redis.call('ZREMRANGEBYSCORE', present, '-inf', now_text)
redis.call('ZADD', present, now_ms + ttl_ms, name)
return {fields > 0 and 1 or 0}
