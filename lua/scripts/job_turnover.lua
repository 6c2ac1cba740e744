-- job_turnover: finish a job, release its slot, and commit a waiting request, perhaps on that slot; atomic.
-- Idempotent: a finished job stays finished, another attempt is fenced, a bound request keeps its binding.
-- USES advance, commit
-- CONFIRMED
-- KEYS
--   job                   hash   record of the job that finishes
--   node                  hash   its node's record
--   leases                zset   its node's slots in use
--   ledger                hash   slots in use and versions; one per cell (its node's)
--   changes               zset   version of each changed node; one per cell (its node's)
-- KEYS per lesson
--   speeds                hash   measured speeds of the nodes; one per cell (its node's)
-- KEYS per commit
--   binding               string binding of the request
-- KEYS per candidate
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   ledger                hash   slots in use and versions; one per cell (the node's)
--   changes               zset   version of each changed node; one per cell (the node's)
--   job                   hash   record of the job on this candidate
-- ARGV
--   node_id               text   the node that the job ran on
--   member                text   member of the lease set: job and attempt
--   holder                text   attempt and node that the job belongs to
--   success               text   ok | failed
-- ARGV per lesson          none or one: measurement of the node's speed, applied if the job finishes now
--   pair                  text   its language pair
--   took_ms               int    processing time
--   audio_ms              int    length of its audio, not 0
--   jobs_remembered       int    jobs in the moving mean
--   half_life_ms          int    half-life of their weight
--   pairs_max             int    language pairs per node with a speed of their own
-- ARGV per commit          none or one: the request that waits for a slot
--   request               text   the request, its session and the edge that owns that
--   about                 text   for operators: utterance, deadline, trace
--   attempt               int    a higher one replaces the binding of a lower one
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer gets no job
--   lease_ms              text   duration of the lease
--   bound_ms              text   TTL of the binding
--   keep_ms               text   TTL of the job's record
--   leases_ms             text   TTL of the set of leases, renewed by heartbeats
-- ARGV per candidate       of the request
--   node_id               text   id of the node
--   job_id                text   id of the job on this candidate
--   expected              int    slots in use assumed by the selection; skipped if more are. -1: any number
-- RETURNS
--   verdict               text   moved | same | fenced | unknown
--   state                 text   state of the finished job afterwards
--   outcome               text   ok | failed, once finished
--   job_request           text   the finished job's request, session and session's edge
--   leased                int    1: it holds a slot
--   used                  int    the node's slots in use before the commit; -1 if they cannot have changed
--   version               int    of the node
--   learned               bytes  packed speeds updated by the finished job, or empty
--   placed                text   new | bound | full | unavailable, as of job_commit; empty without a request
--   bound                 text   the binding in force
--   placed_used           int    slots in use of the request's node, if new
--   placed_version        int    of the request's node, if new
--   reasons               text   per skipped candidate: gone | not_ready | draining | stale | full | moved
--   seen                  list   per candidate skipped for its slots: its index, slots in use, version

local reply, is_finished_now = advance_job(job, node, leases, member, holder, 'finish release', success, 0, 0)
if not is_finished_now then lessons = {} end
local used = reply[6]
-- The ledger is written once, after the commit: mostly the slot that was released is in use again.
local counted = {}
if used >= 0 then counted[leases] = used end

local placed, taken = {'', '', 0, 0, ''}, nil
for _, commit in ipairs(commits) do
  local limits = {heartbeat_timeout_ms = commit.heartbeat_timeout_ms, lease_ms = commit.lease_ms,
    bound_ms = commit.bound_ms, keep_ms = commit.keep_ms, leases_ms = commit.leases_ms}
  placed, taken = commit_request(commit.binding, commit.attempt, commit.request, commit.about, candidates, limits,
    counted)
end
reply[7], reply[8] = 0, ''
if used >= 0 then reply[7], reply[8] = publish_job(counted[leases], ledger, changes, node_id, lessons) end
if taken and taken.leases == leases and used >= 0 then placed[4] = reply[7] end
for i = 1, #placed do reply[8 + i] = placed[i] end
return reply
