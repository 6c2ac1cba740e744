-- presence_withdraw: a process ends.
-- KEYS
--   presence  hash   the process
-- RETURNS
--   removed   int    1: it was there

return {redis.call('DEL', presence)}
