-- pairing_revoke: a node has a newer code; this one stands for nothing. One that was used stays, for repeats of the use.
-- KEYS
--   pairing  hash   what the code stands for
-- ARGV
--   node_id  text   the node
-- RETURNS
--   ended    int    1: it stood for the node until now

local record = redis.call('HMGET', pairing, 'node', 'used')
if record[1] ~= node_id or record[2] then return {0} end
return {redis.call('DEL', pairing)}
