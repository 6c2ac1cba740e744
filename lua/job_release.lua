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
--   holder   text   attempt and node that it belongs to
--   reason   text   why, for people
-- RETURNS
--   verdict  text   released | same | fenced | unknown: no such job
--   used     int    the node's slots in use; -1 if fenced
--   version  int    of the node's cell

local record = redis.call('HMGET', job, 'state', 'holder')
if record[1] and record[2] ~= holder then return {'fenced', -1, 0} end

local verdict = 'unknown'
if record[1] == 'RELEASED' then
  verdict = 'same'
elseif record[1] then
  verdict = 'released'
  redis.call('HSET', job, 'state', 'RELEASED', 'release_ms', now_text, 'reason', reason)
end
redis.call('ZREM', leases, member)
local used = redis.call('ZCARD', leases)
return {verdict, used, settle(used, ledger, changes, node_id)}
