-- weights_set: set the weights, if the caller's expected version is in force (compare-and-set).
-- KEYS
--   weights   hash   the weights
-- ARGV
--   packed    bytes  packed Weights
--   expected  int    version expected by the caller; -1: any
--   by        text   operator who sets them
-- RETURNS
--   ok        int    1: set
--   version   int    version in force
--   since_ms  int    time when the weights in force were set

local record = redis.call('HMGET', weights, 'version', 'since_ms')
local version = tonumber(record[1]) or 0
if expected >= 0 and expected ~= version then return {0, version, tonumber(record[2]) or 0} end
redis.call('HSET', weights, 'version', version + 1, 'packed', packed, 'since_ms', now_text, 'by', by)
return {1, version + 1, now_ms}
