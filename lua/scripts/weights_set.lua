-- weights_set: put other weights in force, if those that the caller knows are still in force.
-- KEYS
--   weights   hash   the weights
-- ARGV
--   packed    bytes  packed Weights
--   expected  int    version that the caller knows; -1: any
--   by        text   who sets them
-- RETURNS
--   ok        int    1: they are in force
--   version   int    in force
--   since_ms  int    when those in force were set

local record = redis.call('HMGET', weights, 'version', 'since_ms')
local version = tonumber(record[1]) or 0
if expected >= 0 and expected ~= version then return {0, version, tonumber(record[2]) or 0} end
redis.call('HSET', weights, 'version', version + 1, 'packed', packed, 'since_ms', now_text, 'by', by)
return {1, version + 1, now_ms}
