-- job_commit: bind a request to the first candidate with a free slot, lease the slot and create the job; atomic.
-- Idempotent (deduplicated by request): one bound by this attempt or a higher one keeps its binding.
-- USES commit
-- CONFIRMED
-- KEYS
--   binding               string binding of the request
-- KEYS per candidate
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions; one per cell (the node's)
--   changes               zset   version of each changed node; one per cell (the node's)
--   job                   hash   record of the job on this candidate
-- ARGV
--   request               text   the request, its session and the edge that owns that
--   about                 text   for operators: utterance, deadline, trace
--   attempt               int    a higher one replaces the binding of a lower one
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer gets no job
--   lease_ms              text   duration of the lease
--   bound_ms              text   TTL of the binding
--   keep_ms               text   TTL of the job's record
--   leases_ms             text   TTL of the set of leases, renewed by heartbeats
-- ARGV per candidate
--   node_id               text   id of the node
--   job_id                text   id of the job on this candidate
--   expected              int    slots in use assumed by the selection; skipped if more are. -1: any number
-- RETURNS
--   verdict               text   new | bound | full: a candidate lacks a free slot | unavailable: none lacks only that
--   bound                 text   the binding in force
--   used                  int    the node's slots in use, if new
--   version               int    of the node, if new
--   reasons               text   per skipped candidate: gone | not_ready | draining | stale | full | moved
--   seen                  list   per candidate skipped for its slots: its index, slots in use, version

local limits = {heartbeat_timeout_ms = heartbeat_timeout_ms, lease_ms = lease_ms, bound_ms = bound_ms,
  keep_ms = keep_ms, leases_ms = leases_ms}
local reply = commit_request(binding, attempt, request, about, candidates, limits, {})
return reply
