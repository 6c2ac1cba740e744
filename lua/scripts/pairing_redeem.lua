-- pairing_redeem: redeem a code, once. Idempotent per use: a retry gets the same node.
-- KEYS
--   pairing  hash   record of the code
-- ARGV
--   use      text   id of the use
--   keep_ms  text   time during which a retry is recognised
-- RETURNS
--   node_id  text   the node; empty: there is no such code, or it was redeemed

local record = redis.call('HMGET', pairing, 'node', 'used')
if not record[1] or (record[2] and record[2] ~= use) then return {''} end
if not record[2] then
  redis.call('HSET', pairing, 'used', use)
  redis.call('PEXPIRE', pairing, keep_ms)
end
return {record[1]}
