-- deployment_check: store the settings of a new deployment that all processes must share; return the stored ones.
-- KEYS
--   deployment  hash   settings stored when the deployment was created
-- ARGV
--   cells       int    number of cells
-- RETURNS
--   cells       int    number of cells in force

if redis.call('HSETNX', deployment, 'cells', cells) == 1 then redis.call('HSET', deployment, 'born_ms', now_text) end
return {tonumber(redis.call('HGET', deployment, 'cells'))}
