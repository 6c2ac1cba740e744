-- job_advance: apply events to a job's state machine. Idempotent; events of another attempt are fenced.
-- USES advance
-- KEYS
--   job         hash   the job's record
--   node        hash   the node's record
--   leases      zset   the node's slots in use
--   ledger      hash   slots in use and versions; one per cell (the node's)
--   changes     zset   version of each changed node; one per cell (the node's)
-- KEYS per lesson
--   speeds      hash   measured speeds of the nodes; one per cell (the node's)
-- ARGV
--   node_id     text   the node that the event came from
--   member      text   member of the lease set: job and attempt
--   holder      text   attempt and node that the event belongs to
--   events      text   dispatch | accept | start | finish | release, several separated by blanks
--   success     text   ok | failed, recorded by finish
--   lease_ms    int    duration of the lease from now on, while the job runs
--   leases_ms   text   TTL of the set of leases
-- ARGV per lesson          none or one: measurement of the node's speed, applied if the job finishes now
--   pair             text  its language pair
--   took_ms          int   processing time
--   audio_ms         int   length of its audio, not 0
--   jobs_remembered  int   jobs in the moving mean
--   half_life_ms     int   half-life of their weight
--   pairs_max        int   language pairs per node with a speed of their own
-- RETURNS
--   verdict     text   moved | same | fenced | unknown
--   state       text   state of the job afterwards
--   outcome     text   ok | failed, once finished
--   request     text   the job's request, session and session's edge
--   leased      int    1: it holds a slot
--   used        int    the node's slots in use; -1 if they cannot have changed
--   version     int    of the node
--   learned     bytes  packed speeds updated by this job, or empty

local reply, is_finished_now = advance_job(job, node, leases, member, holder, events, success, lease_ms, leases_ms)
if not is_finished_now then lessons = {} end
if reply[6] < 0 and #lessons > 0 then reply[6] = redis.call('ZCARD', leases) end
reply[7], reply[8] = 0, ''
if reply[6] >= 0 then reply[7], reply[8] = publish_job(reply[6], ledger, changes, node_id, lessons) end
return reply
