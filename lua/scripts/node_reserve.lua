-- node_reserve: hold a slot for a short while and write the job, before its request is bound in another slot of the cluster.
-- If nothing follows, the lease lapses by itself.
-- USES capacity, lease, job
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions, of its cell
--   changes               zset   versions, of its cell
--   job                   hash   the job's record
-- ARGV
--   node_id               text   which node
--   member                text   the job's name among the leases
--   holder                text   attempt and node that it belongs to
--   request               text   the request, its session and the edge that owns that
--   about                 text   for people: which utterance, its deadline, its trace
--   expected              int    the node is passed over if more slots are in use; -1: only if all are
--   heartbeat_timeout_ms  int    a node silent for longer gets nothing
--   provisional_ms        int    life of the slot until the job is dispatched
--   keep_ms               text   life of the job's record
--   leases_ms             text   life of a set of leases without a heartbeat
-- RETURNS
--   verdict               text   ok | gone | not_ready | draining | stale | full | moved | released: given up before
--   node_edge             text   the node's edge
--   node_epoch            text   the node's connection
--   used                  int    the node's slots in use; -1 if they are not the reason
--   version               int    of the node
--   until_ms              int    when the slot lapses

local state = redis.call('HGET', job, 'state')
if state and state ~= 'CREATED' then return {'released', '', '', -1, 0, 0} end
local reason, used, node_edge, epoch = check_capacity(node, leases, member, expected, heartbeat_timeout_ms)
if reason ~= '' then
  local version = used and settle(used, ledger, changes, node_id) or 0
  return {reason, '', '', used or -1, version, 0}
end

used = hold(leases, used, member, provisional_ms, leases_ms)
open_job(job, keep_ms, holder, request, about)
local version = settle(used, ledger, changes, node_id)
return {'ok', node_edge, epoch, used, version, now_ms + provisional_ms}
