-- presence_list: which processes have announced themselves; reads only.
-- KEYS
--   present  zset   every process that announced itself
-- ARGV
--   limit    int    at most so many
-- RETURNS
--   names    list   kind and identity of each

return redis.call('ZREVRANGEBYSCORE', present, '+inf', '(' .. now_text, 'LIMIT', 0, limit)
