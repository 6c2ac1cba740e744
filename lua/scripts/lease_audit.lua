-- lease_audit: release an orphaned lease and its job, unless the lease was renewed since it was found.
-- USES lease
-- KEYS
--   job       hash   the job's record
--   leases    zset   the node's slots in use
--   ledger    hash   slots in use and versions; one per cell (the node's)
--   changes   zset   version of each changed node; one per cell (the node's)
-- ARGV
--   node_id   text   the node of the slot
--   member    text   member of the lease set: job and attempt
--   holder    text   attempt and node that it belongs to
--   until_ms  int    expiry of the lease when it was found
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
local version = update_ledger(used, ledger, changes, node_id)
return {is_free and 'freed' or 'kept', used, version}
