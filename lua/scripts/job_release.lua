-- job_release: give back the slot of exactly this attempt, whatever the job has come to; a repeat is a no-op.
-- A node that came back keeps its jobs, if the one who gives them up knows only an earlier connection of it.
-- USES lease
-- KEYS
--   job      hash   the job's record
--   node     hash   the node's record
--   leases   zset   the node's slots in use
--   ledger   hash   slots in use and versions, of the node's cell
--   changes  zset   versions, of the node's cell
-- ARGV
--   node_id  text   the node that holds the slot
--   member   text   the job's name among the leases
--   holder   text   attempt and node that it belongs to
--   reason   text   why, for people
--   epoch    int    the connection whose end is the reason; 0 if that is not the reason
-- RETURNS
--   verdict  text   released | same | fenced | kept: the node lives, by a later connection | unknown: no such job
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
local version = settle(used, ledger, changes, node_id)
return {verdict, used, version}
