-- node_heartbeat: renew a node's record, status and load; drop expired leases; audit the others by its running jobs.
-- USES lease, node_state, audit, node_index
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   nodes                 zset   last heartbeat of each node; one per cell
--   due                   zset   time of each node's next timeout; one per cell
--   ledger                hash   slots in use and versions; one per cell
--   changes               zset   version of each changed node; one per cell
--   view                  hash   view of the nodes, read by snapshots; one per cell
-- KEYS per join
--   pool                  set    a pool that the node joins
-- KEYS per leave
--   pool                  set    a pool that the node leaves
-- KEYS per run
--   job                   hash   record of a job that the node runs
-- ARGV
--   node_id               text   id of the node
--   edge                  text   the edge that holds its socket
--   epoch                 int    of the connection
--   event                 text   healthy | unhealthy
--   load                  bytes  packed NodeLoad
--   caps                  bytes  packed NodeCaps; empty: capabilities, slots and pools stay as they are
--   max_jobs              text   its slots
--   pools                 text   pools from now on, sorted, separated by commas
--   pools_before          text   pools that the caller expects to be stored
--   health_checks         int    healthy heartbeats in a row that make a registering node ready
--   warmup_timeout_ms     int    a node that is registering for longer becomes degraded
--   failure_window        int    number of latest heartbeats that are judged
--   failures_max          int    unhealthy ones among them that make a ready node degraded
--   failures_in_row_max   int    unhealthy ones in a row that make it degraded
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer is offline
--   record_ttl_ms         int    TTL of the record, renewed by heartbeats
--   lease_ms              int    duration of a running job's lease from now on
--   provisional_ms        int    duration of a provisional lease (its request is not bound yet)
--   grace_ms              int    leases younger than this are not compared; -1: compare none
--   leases_ms             text   TTL of the set of leases, renewed by heartbeats
-- ARGV per run
--   member                text   member of the lease set: job and attempt
--   holder                text   attempt and node that the job belongs to
-- RETURNS
--   verdict               text   ok | superseded | unknown | pools: no change, pools_before is wrong
--   pools_stored          text   stored pools
--   used                  int    slots in use
--   version               int    of the node
--   status                text   new status
--   status_before         text   old status
--   reason                text   reason of the status
--   missing               int    running jobs whose lease was lost and is restored
--   orphaned              list   orphaned leases: member, expiry

local record = redis.call('HMGET', node, 'epoch', 'status', 'max_jobs')
local known = tonumber(record[1]) or 0
-- A later connection that is offline supersedes nothing: a live node registers again.
if known > epoch and record[2] ~= 'offline' then return {'superseded', '', 0, 0, '', '', '', 0} end
local state = read_node_state(node)
-- An unlisted node is listed again by a registration, never by a delayed heartbeat.
if known ~= epoch or state.seen_ms == 0 or redis.call('HEXISTS', view, node_id) == 0 then
  return {'unknown', '', 0, 0, '', '', '', 0}
end
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if state.detached_ms > 0 then
  -- Its socket is closed: this heartbeat was sent before that.
  local used = tonumber(redis.call('HGET', ledger, node_id)) or 0
  local version = tonumber(redis.call('ZSCORE', changes, node_id)) or 0
  return {'ok', stored, used, version, state.status, state.status, state.reason, 0}
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
node_state_step(state, event, now_ms, limits)
write_node_state(node, state)
redis.call('HSET', node, 'edge', edge)
redis.call('PEXPIRE', node, record_ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
redis.call('ZADD', nodes, now_text, node_id)

local used, missing, is_running = count_live_leases(leases), 0, {}
for _, run in ipairs(runs) do
  local regained = renew_lease(run.job, leases, run.member, run.holder, used, slots, lease_ms, leases_ms)
  used, missing, is_running[run.member] = used + regained, missing + regained, true
end
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local epoch_text = string.format('%.0f', epoch)
local version = publish_node(lists, node_id, state, node_state_due_ms(state, limits), epoch_text, edge, load, used)
local reply = {'ok', stored, used, version, state.status, record[2], state.reason, missing}
if grace_ms >= 0 then
  local before = #reply
  append_orphaned_leases(leases, is_running, lease_ms, grace_ms, provisional_ms, reply)
  -- Stored until an audit finds no difference, so that every selector can export it.
  local drift = missing + (#reply - before) / 2
  if drift > 0 then
    redis.call('HSET', ledger, node_id .. '#d', drift)
  else
    redis.call('HDEL', ledger, node_id .. '#d')
  end
end
return reply
