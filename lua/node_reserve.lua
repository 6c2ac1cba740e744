-- node_reserve: hold a slot for a short while and write the job, before its request is bound in another slot of the cluster.
-- If nothing follows, the lease lapses by itself.
-- USES room, lease, job
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions, of its cell
--   changes               zset   versions, of its cell
--   job                   hash   the job's record
-- ARGV
--   node_id               text   which node
--   member                text   the job's name among the leases
--   request_id            text   the request
--   session_id            text   its session
--   edge                  text   the edge that owns the session
--   utterance_index       int    which utterance
--   attempt               int    which attempt
--   deadline_ms           int    wall clock
--   trace_id              text   for logs
--   heartbeat_timeout_ms  int    a node silent for longer gets nothing
--   provisional_ms        int    life of the slot until the job is dispatched
--   keep_ms               int    life of the job's record
-- RETURNS
--   verdict               text   ok | gone | not_ready | stale | full | released: this job was given up before
--   node_edge             text   the node's edge
--   node_epoch            int    the node's connection
--   used                  int    the node's slots in use
--   version               int    of the node's cell
--   until_ms              int    when the slot lapses

local state = redis.call('HGET', job, 'state')
if state and state ~= 'CREATED' then return {'released', '', 0, 0, 0, 0} end
local reason, node_edge, epoch = room(node, leases, member, heartbeat_timeout_ms)
if reason ~= '' then return {reason, '', 0, 0, 0, 0} end

hold(leases, member, provisional_ms, keep_ms)
open_job(job, keep_ms, {
  'attempt', attempt, 'node', node_id, 'node_edge', node_edge, 'node_epoch', epoch,
  'request', request_id, 'session', session_id, 'edge', edge, 'index', utterance_index,
  'deadline_ms', deadline_ms, 'trace', trace_id,
})
local used, version = settle(leases, ledger, changes, node_id)
return {'ok', node_edge, tonumber(epoch), used, version, now_ms + provisional_ms}
