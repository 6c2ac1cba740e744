-- pairing_create: let a code stand for a node, if nothing else has it. A repeat of the same request changes nothing.
-- KEYS
--   pairing  hash   what the code stands for
-- ARGV
--   node_id  text   the node
--   request  text   who asked, and its number for that
--   ttl_ms   int    life of the code
-- RETURNS
--   left_ms  int    what is left of its life; 0: the code is taken

local by = redis.call('HGET', pairing, 'request')
if by == request then return {math.max(1, redis.call('PTTL', pairing))} end
if by then return {0} end
redis.call('HSET', pairing, 'node', node_id, 'request', request)
redis.call('PEXPIRE', pairing, ttl_ms)
return {ttl_ms}
