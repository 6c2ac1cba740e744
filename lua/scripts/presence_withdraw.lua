-- presence_withdraw: remove the presence of a process that ends.
-- KEYS
--   present   zset   expiry of every announced process
--   presence  hash   record of the process
-- ARGV
--   name      text   kind and identity
-- RETURNS
--   removed   int    1: there was a record

redis.call('ZREM', present, name)
return {redis.call('DEL', presence)}
