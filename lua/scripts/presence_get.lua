-- presence_get: record of a live process; read-only.
-- KEYS
--   presence       hash   record of the process
-- RETURNS
--   known          int    0: it expired
--   host           text   host name
--   pid            int    process id
--   version        text   software version
--   started_at_ms  int    start time, wall clock
--   counts         bytes  its counters, as JSON

local record = redis.call('HMGET', presence, 'host', 'pid', 'version', 'started_at_ms', 'counts')
if not record[1] then return {0, '', 0, '', 0, ''} end
return {1, record[1], tonumber(record[2]), record[3], tonumber(record[4]), record[5]}
