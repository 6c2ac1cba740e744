-- request_get: where a request is bound; reads only.
-- KEYS
--   binding  string where the request is bound
-- RETURNS
--   bound    text   the binding in force (attempt, job, node, the node's edge, its epoch), or nothing

return {redis.call('GET', binding) or ''}
