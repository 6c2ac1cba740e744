-- deployment_check: fix what every process must agree on, the first time; tell what was fixed, ever after.
-- KEYS
--   deployment  hash   what was fixed when the deployment was born
-- ARGV
--   cells       int    number of cells
-- RETURNS
--   cells       int    number of cells in force

if redis.call('HSETNX', deployment, 'cells', cells) == 1 then redis.call('HSET', deployment, 'born_ms', now_text) end
return {tonumber(redis.call('HGET', deployment, 'cells'))}
