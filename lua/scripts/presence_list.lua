-- presence_list: live processes; read-only.
-- KEYS
--   present  zset   expiry of every announced process
-- ARGV
--   limit    int    maximum number
-- RETURNS
--   names    list   kind and identity of each

return redis.call('ZREVRANGEBYSCORE', present, '+inf', '(' .. now_text, 'LIMIT', 0, limit)
