-- presence_announce: a process lives; it says so again before this lapses.
-- KEYS
--   presence       hash   the process
-- ARGV
--   host           text   where it runs
--   pid            text   its process id there
--   version        text   of its software
--   started_at_ms  text   its wall clock when it began
--   ttl_ms         text   life of the record without another word
-- RETURNS
--   new            int    1: there was none

local fields = redis.call('HSET', presence, 'host', host, 'pid', pid, 'version', version,
  'started_at_ms', started_at_ms)
redis.call('PEXPIRE', presence, ttl_ms)
return {fields > 0 and 1 or 0}
