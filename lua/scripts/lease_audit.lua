-- lease_audit: give back a slot that nobody uses, and give up its job; unless the slot was renewed since that was seen.
-- USES lease
-- KEYS
--   job       hash   the job's record
--   leases    zset   the node's slots in use
--   ledger    hash   slots in use and versions, of the node's cell
--   changes   zset   versions, of the node's cell
-- ARGV
--   node_id   text   the node that holds the slot
--   member    text   the job's name among the leases
--   holder    text   attempt and node that it belongs to
--   until_ms  int    the lease's end when it was seen
-- RETURNS
--   verdict   text   freed | kept
--   used      int    the node's slots in use
--   version   int    of the node

local is_free = tonumber(redis.call('ZSCORE', leases, member) or -1) == until_ms
if is_free then
  redis.call('ZREM', leases, member)
  local record = redis.call('HMGET', job, 'state', 'holder')
  if record[2] == holder and record[1] ~= 'RELEASED' then
    redis.call('HSET', job, 'state', 'RELEASED', 'release_ms', now_text, 'reason', 'audit')
  end
end
local used = redis.call('ZCARD', leases)
local version = settle(used, ledger, changes, node_id)
return {is_free and 'freed' or 'kept', used, version}
