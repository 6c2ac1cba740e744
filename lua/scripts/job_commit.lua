-- job_commit: bind a request to the first candidate with room, hold its slot and write the job; all or nothing.
-- A request that is bound already, by this attempt or a higher one, keeps its binding.
-- USES capacity, lease, job, binding
-- CONFIRMED
-- KEYS
--   binding               string where the request is bound
-- KEYS per candidate
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions, of its cell
--   changes               zset   versions, of its cell
--   job                   hash   the job's record, if it goes there
-- ARGV
--   request               text   the request, its session and the edge that owns that
--   about                 text   for people: which utterance, its deadline, its trace
--   attempt               int    a higher one replaces the binding of a lower one
--   heartbeat_timeout_ms  int    a node silent for longer gets nothing
--   lease_ms              text   life of the slot
--   bound_ms              text   life of the binding
--   keep_ms               text   life of the job's record
--   leases_ms             text   life of a set of leases without a heartbeat
-- ARGV per candidate
--   node_id               text   which node
--   job_id                text   the job's id, if it goes there
--   expected              int    it is passed over if more slots are in use; -1: only if all are
-- RETURNS
--   verdict               text   new | bound | full: a candidate lacks a free slot | unavailable: none lacks only that
--   bound                 text   the binding in force
--   used                  int    the node's slots in use, if new
--   version               int    of the node, if new
--   reasons               text   per candidate passed over: gone | not_ready | draining | stale | full | moved
--   seen                  list   per candidate passed over for its slots: its place, slots in use, version

local bound = redis.call('GET', binding)
if bound and read_binding(bound) >= attempt then return {'bound', bound, 0, 0, ''} end

local reasons, reply = {}, {'unavailable', '', 0, 0, ''}
for place, candidate in ipairs(candidates) do
  local member = candidate.job_id .. '#' .. attempt
  local reason, used, node_edge, epoch = check_capacity(candidate.node, candidate.leases, member, candidate.expected,
    heartbeat_timeout_ms)
  if reason == '' then
    used = hold(candidate.leases, used, member, lease_ms, leases_ms)
    open_job(candidate.job, keep_ms, attempt .. ' ' .. candidate.node_id, request, about)
    bound = table.concat({attempt, candidate.job_id, candidate.node_id, node_edge, epoch}, ' ')
    redis.call('SET', binding, bound, 'PX', bound_ms)
    reply[1], reply[2], reply[3] = 'new', bound, used
    reply[4] = settle(used, candidate.ledger, candidate.changes, candidate.node_id)
    return reply
  end
  reasons[place] = reason
  if used then
    reply[1] = 'full'
    local at = #reply
    reply[at + 1], reply[at + 2] = place, used
    reply[at + 3] = settle(used, candidate.ledger, candidate.changes, candidate.node_id)
  end
end
reply[5] = table.concat(reasons, ',')
return reply
