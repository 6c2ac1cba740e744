-- presence_withdraw: a process ends.
-- KEYS
--   present   zset   every process that announced itself
--   presence  hash   the process
-- ARGV
--   name      text   its kind and identity
-- RETURNS
--   removed   int    1: it was there

redis.call('ZREM', present, name)
return {redis.call('DEL', presence)}
