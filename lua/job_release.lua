-- job_release: give back the slot of exactly this attempt, whatever the job has come to; a repeat is a no-op.
-- USES lease
-- KEYS
--   job      hash   the job's record
--   leases   zset   the node's slots in use
--   ledger   hash   slots in use and versions, of the node's cell
--   changes  zset   versions, of the node's cell
-- ARGV
--   node_id  text   the node that holds the slot
--   member   text   the job's name among the leases
--   attempt  int    which attempt
--   reason   text   why, for people
--   keep_ms  int    life of the job's record
-- RETURNS
--   verdict  text   released | same | fenced | unknown: no such job
--   used     int    the node's slots in use; -1 if nothing was touched
--   version  int    of the node's cell

local record = redis.call('HMGET', job, 'state', 'attempt', 'node')
if record[1] and (tonumber(record[2]) ~= attempt or record[3] ~= node_id) then return {'fenced', -1, 0} end

local verdict = 'unknown'
if record[1] == 'RELEASED' then
  verdict = 'same'
elseif record[1] then
  verdict = 'released'
  redis.call('HSET', job, 'state', 'RELEASED', 'release_ms', now_ms, 'reason', reason)
  redis.call('PEXPIRE', job, keep_ms)
end
redis.call('ZREM', leases, member)
live_leases(leases)
local used, version = settle(leases, ledger, changes, node_id)
return {verdict, used, version}
