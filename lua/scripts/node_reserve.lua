-- node_reserve: lease a slot provisionally and create the job, before its request is bound in another hash slot.
-- Without a bind the provisional lease expires.
-- USES capacity, lease, job
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions; one per cell (the node's)
--   changes               zset   version of each changed node; one per cell (the node's)
--   job                   hash   the job's record
-- ARGV
--   node_id               text   id of the node
--   member                text   member of the lease set: job and attempt
--   holder                text   attempt and node that it belongs to
--   request               text   the request, its session and the edge that owns that
--   about                 text   for operators: utterance, deadline, trace
--   expected              int    slots in use assumed by the selection; refused if more are in use. -1: any number
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer gets no job
--   provisional_ms        int    duration of the provisional lease
--   keep_ms               text   TTL of the job's record
--   leases_ms             text   TTL of the set of leases, renewed by heartbeats
-- RETURNS
--   verdict               text   ok | gone | not_ready | draining | stale | full | moved | released: the job was
--   node_edge             text   the node's edge
--   node_epoch            text   the node's connection
--   used                  int    the node's slots in use; -1 if slots are not the reason
--   version               int    of the node
--   until_ms              int    expiry of the lease

local state = redis.call('HGET', job, 'state')
if state and state ~= 'CREATED' then return {'released', '', '', -1, 0, 0} end
local reason, used, node_edge, epoch = check_capacity(node, leases, member, expected, heartbeat_timeout_ms)
if reason ~= '' then
  local version = used and update_ledger(used, ledger, changes, node_id) or 0
  return {reason, '', '', used or -1, version, 0}
end

used = add_lease(leases, used, member, provisional_ms, leases_ms)
create_job(job, keep_ms, holder, request, about)
local version = update_ledger(used, ledger, changes, node_id)
return {'ok', node_edge, epoch, used, version, now_ms + provisional_ms}
