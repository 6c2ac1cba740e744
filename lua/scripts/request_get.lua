-- request_get: binding of a request; read-only.
-- KEYS
--   binding  string binding of the request
-- RETURNS
--   bound    text   the binding in force (attempt, job, node, the node's edge, its epoch), or empty

return {redis.call('GET', binding) or ''}
