-- pairing_revoke: delete a code that a newer one replaces. A redeemed code stays, for retries of its use.
-- KEYS
--   pairing  hash   record of the code
-- ARGV
--   node_id  text   the node
-- RETURNS
--   ended    int    1: deleted

local record = redis.call('HMGET', pairing, 'node', 'used')
if record[1] ~= node_id or record[2] then return {0} end
return {redis.call('DEL', pairing)}
