-- weights_get: the weights in force; read-only.
-- KEYS
--   weights   hash   the weights
-- RETURNS
--   version   int    0: never set
--   packed    bytes  packed Weights
--   since_ms  int    when they were set
--   by        text   operator who set them

local record = redis.call('HMGET', weights, 'version', 'packed', 'since_ms', 'by')
return {tonumber(record[1]) or 0, record[2] or '', tonumber(record[3]) or 0, record[4] or ''}
