-- pairing_redeem: use a code, once. A repeat of the same use gets the same node.
-- KEYS
--   pairing  hash   what the code stands for
-- ARGV
--   use      text   names the use
--   keep_ms  text   so long a repeat is recognised
-- RETURNS
--   node_id  text   the node; nothing: there is no such code, or it was used

local record = redis.call('HMGET', pairing, 'node', 'used')
if not record[1] or (record[2] and record[2] ~= use) then return {''} end
if not record[2] then
  redis.call('HSET', pairing, 'used', use)
  redis.call('PEXPIRE', pairing, keep_ms)
end
return {record[1]}
