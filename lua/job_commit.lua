-- job_commit: bind a request to the first candidate with room, hold its slot and write the job; all or nothing.
-- A request that is bound already, by this attempt or a higher one, keeps its binding.
-- USES room, lease, job
-- CONFIRMED
-- KEYS
--   binding               hash   where the request is bound
-- KEYS per candidate
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions, of its cell
--   changes               zset   versions, of its cell
--   job                   hash   the job's record, if it goes there
-- ARGV
--   request_id            text   the request
--   session_id            text   its session
--   edge                  text   the edge that owns the session
--   utterance_index       int    which utterance
--   attempt               int    a higher one replaces the binding of a lower one
--   deadline_ms           int    wall clock
--   trace_id              text   for logs
--   heartbeat_timeout_ms  int    a node silent for longer gets nothing
--   lease_ms              int    life of slot and binding
--   keep_ms               int    life of the job's record
-- ARGV per candidate
--   node_id               text   which node
--   job_id                text   the job's id, if it goes there
--   member                text   its name among the leases
-- RETURNS
--   verdict               text   new | bound | full
--   job_id                text   the job in force
--   node_id               text   its node
--   node_edge             text   the node's edge
--   node_epoch            int    the node's connection
--   attempt               int    the attempt in force
--   used                  int    the node's slots in use, if new
--   version               int    of the node's cell, if new
--   reasons               text   per candidate without room: gone | not_ready | stale | full

local bound = redis.call('HMGET', binding, 'job', 'node', 'node_edge', 'node_epoch', 'attempt')
if bound[1] and tonumber(bound[5]) >= attempt then
  return {'bound', bound[1], bound[2], bound[3], tonumber(bound[4]), tonumber(bound[5]), 0, 0, ''}
end

local reasons = {}
for place, candidate in ipairs(candidates) do
  local reason, node_edge, epoch = room(candidate.node, candidate.leases, candidate.member, heartbeat_timeout_ms)
  if reason == '' then
    hold(candidate.leases, candidate.member, lease_ms, keep_ms)
    open_job(candidate.job, keep_ms, {
      'attempt', attempt, 'node', candidate.node_id, 'node_edge', node_edge, 'node_epoch', epoch,
      'request', request_id, 'session', session_id, 'edge', edge, 'index', utterance_index,
      'deadline_ms', deadline_ms, 'trace', trace_id,
    })
    redis.call('HSET', binding, 'job', candidate.job_id, 'node', candidate.node_id, 'node_edge', node_edge,
      'node_epoch', epoch, 'attempt', attempt)
    redis.call('PEXPIRE', binding, lease_ms)
    local used, version = settle(candidate.leases, candidate.ledger, candidate.changes, candidate.node_id)
    return {'new', candidate.job_id, candidate.node_id, node_edge, tonumber(epoch), attempt, used, version, ''}
  end
  reasons[place] = reason
end
return {'full', '', '', '', 0, attempt, 0, 0, table.concat(reasons, ',')}
