-- presence_get: what a process says of itself; reads only.
-- KEYS
--   presence       hash   the process
-- RETURNS
--   known          int    0: it lapsed
--   host           text   where it runs
--   pid            int    its process id there
--   version        text   of its software
--   started_at_ms  int    its wall clock when it began
--   counts         bytes  what it counts, as JSON

local record = redis.call('HMGET', presence, 'host', 'pid', 'version', 'started_at_ms', 'counts')
if not record[1] then return {0, '', 0, '', 0, ''} end
return {1, record[1], tonumber(record[2]), record[3], tonumber(record[4]), record[5]}
