-- job_release: release the slot of exactly this attempt, in any state of the job. Idempotent.
-- Fenced by epoch: a node that reconnected keeps its jobs if the caller knows only an earlier connection.
-- USES lease
-- KEYS
--   job      hash   the job's record
--   node     hash   the node's record
--   leases   zset   the node's slots in use
--   ledger   hash   slots in use and versions; one per cell (the node's)
--   changes  zset   version of each changed node; one per cell (the node's)
-- ARGV
--   node_id  text   the node of the slot
--   member   text   member of the lease set: job and attempt
--   holder   text   attempt and node that it belongs to
--   reason   text   reason, for operators
--   epoch    int    epoch of the connection whose end caused the release; 0: another cause
-- RETURNS
--   verdict  text   released | same | fenced | kept: the node is live on a later connection | unknown: no such job
--   used     int    the node's slots in use; -1 if fenced or kept
--   version  int    of the node

local record = redis.call('HMGET', job, 'state', 'holder')
if record[1] and record[2] ~= holder then return {'fenced', -1, 0} end

if epoch > 0 then
  local now = redis.call('HMGET', node, 'epoch', 'status')
  if (tonumber(now[1]) or 0) > epoch and now[2] ~= 'offline' then return {'kept', -1, 0} end
end

local verdict = 'unknown'
if record[1] == 'RELEASED' then
  verdict = 'same'
elseif record[1] then
  verdict = 'released'
  redis.call('HSET', job, 'state', 'RELEASED', 'release_ms', now_text, 'reason', reason)
end
redis.call('ZREM', leases, member)
local used = redis.call('ZCARD', leases)
local version = update_ledger(used, ledger, changes, node_id)
return {verdict, used, version}
