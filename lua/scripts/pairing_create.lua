-- pairing_create: assign a code to a node, if it is free. Idempotent per request.
-- KEYS
--   pairing  hash   record of the code
-- ARGV
--   node_id  text   the node
--   request  text   caller and serial number of its request
--   ttl_ms   int    TTL of the code
-- RETURNS
--   left_ms  int    remaining TTL; 0: the code is taken

local by = redis.call('HGET', pairing, 'request')
if by == request then return {math.max(1, redis.call('PTTL', pairing))} end
if by then return {0} end
redis.call('HSET', pairing, 'node', node_id, 'request', request)
redis.call('PEXPIRE', pairing, ttl_ms)
return {ttl_ms}
