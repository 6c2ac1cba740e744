-- request_look: where a request is bound; reads only.
-- KEYS
--   binding     hash   where the request is bound
-- RETURNS
--   job_id      text   the job in force, or nothing
--   node_id     text   its node
--   node_edge   text   the node's edge
--   node_epoch  int    the node's connection
--   attempt     int    the attempt in force

local bound = redis.call('HMGET', binding, 'job', 'node', 'node_edge', 'node_epoch', 'attempt')
if not bound[1] then return {'', '', '', 0, 0} end
return {bound[1], bound[2], bound[3], tonumber(bound[4]), tonumber(bound[5])}
