-- node_heartbeat: renew a node's record, status and load, drop lapsed leases, compare the others with what it runs.
-- USES lease, node_state, audit, node_index
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   nodes                 zset   last seen, of the cell
--   due                   zset   when time changes a node next, of the cell
--   ledger                hash   slots in use and versions, of the cell
--   changes               zset   versions, of the cell
--   view                  hash   what snapshots read, of the cell
-- KEYS per join
--   pool                  set    a pool that the node is in from now on
-- KEYS per leave
--   pool                  set    a pool that it was in and is no longer
-- KEYS per run
--   job                   hash   the record of a job that runs there
-- ARGV
--   node_id               text   which node
--   edge                  text   the edge that holds its socket
--   epoch                 int    of the connection
--   event                 text   healthy | unhealthy
--   load                  bytes  packed NodeLoad
--   caps                  bytes  packed NodeCaps; empty: capabilities, slots and pools stay as they are
--   max_jobs              text   its slots
--   pools                 text   pools from now on, sorted, separated by commas
--   pools_before          text   pools that the caller believes are stored
--   health_checks         int    healthy heartbeats in a row that make a registering node ready
--   warmup_timeout_ms     int    a node that registers for longer is degraded
--   failure_window        int    of the last so many heartbeats
--   failures_max          int    this many unhealthy ones make a ready node degraded
--   failures_in_row_max   int    or so many in a row
--   heartbeat_timeout_ms  int    a node silent for longer is offline
--   record_ttl_ms         int    life of the record without another heartbeat
--   lease_ms              int    life of a running job's slot from now on
--   provisional_ms        int    life of a slot whose request is not bound yet
--   grace_ms              int    a slot younger than this is not compared; -1: none is
--   leases_ms             text   life of the set of leases without another heartbeat
-- ARGV per run
--   member                text   the job's name among the leases
--   holder                text   attempt and node that it belongs to
-- RETURNS
--   verdict               text   ok | superseded | unknown | pools: nothing was done, because pools_before is wrong
--   pools_stored          text   pools that are stored
--   used                  int    slots in use
--   version               int    of the node
--   status                text   from now on
--   status_before         text   until now
--   reason                text   why it has this status
--   missing               int    running jobs that had no slot and have one again
--   held                  list   slots that no running job has: the name of the lease, its end

local record = redis.call('HMGET', node, 'epoch', 'status', 'max_jobs')
local known = tonumber(record[1]) or 0
-- A later connection that has ended keeps nobody out: who lives registers again.
if known > epoch and record[2] ~= 'offline' then return {'superseded', '', 0, 0, '', '', '', 0} end
local life = read_life(node)
-- A node that was taken off the lists comes back by registering, never by a heartbeat that was late.
if known ~= epoch or life.seen_ms == 0 or redis.call('HEXISTS', view, node_id) == 0 then
  return {'unknown', '', 0, 0, '', '', '', 0}
end
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if life.detached_ms > 0 then
  -- Its socket is closed, so this heartbeat is from before.
  local used = tonumber(redis.call('HGET', ledger, node_id)) or 0
  local version = tonumber(redis.call('ZSCORE', changes, node_id)) or 0
  return {'ok', stored, used, version, life.status, life.status, life.reason, 0}
end

local slots = tonumber(record[3])
if caps ~= '' then
  if stored ~= pools_before then return {'pools', stored, 0, 0, '', '', '', 0} end
  for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
  for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
  redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)
  redis.call('HSET', node, 'max_jobs', max_jobs)
  stored, slots = pools, tonumber(max_jobs)
end

local limits = {health_checks = health_checks, warmup_timeout_ms = warmup_timeout_ms, failure_window = failure_window,
  failures_max = failures_max, failures_in_row_max = failures_in_row_max,
  heartbeat_timeout_ms = heartbeat_timeout_ms, record_ttl_ms = record_ttl_ms}
life_step(life, event, now_ms, limits)
write_life(node, life)
redis.call('HSET', node, 'edge', edge)
redis.call('PEXPIRE', node, record_ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
redis.call('ZADD', nodes, now_text, node_id)

local used, missing, is_running = live_leases(leases), 0, {}
for _, run in ipairs(runs) do
  local regained = keep_slot(run.job, leases, run.member, run.holder, used, slots, lease_ms, leases_ms)
  used, missing, is_running[run.member] = used + regained, missing + regained, true
end
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local epoch_text = string.format('%.0f', epoch)
local version = show_node(lists, node_id, life, life_due_ms(life, limits), epoch_text, edge, load, used)
local reply = {'ok', stored, used, version, life.status, record[2], life.reason, missing}
if grace_ms >= 0 then
  local before = #reply
  held_for_nobody(leases, is_running, lease_ms, grace_ms, provisional_ms, reply)
  -- Kept until a comparison finds nothing, so that every selector can tell how far off the slots are.
  local drift = missing + (#reply - before) / 2
  if drift > 0 then
    redis.call('HSET', ledger, node_id .. '#d', drift)
  else
    redis.call('HDEL', ledger, node_id .. '#d')
  end
end
return reply
