-- node_register: write a node's record for a new connection and add it to the lists and its pools.
-- The epoch names the connection: a later registration always gets a higher one, even if Redis has forgotten the last.
-- Edges retry unacknowledged registrations; late ones are deduplicated by `ref` and change nothing. A duplicate of the
-- registration in force gets its epoch, one of an earlier registration an epoch that is no longer in force.
-- USES lease, node_state, node_index
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
-- ARGV
--   node_id               text   id of the node
--   edge                  text   the edge that holds its socket
--   ref                   text   number of this registration at its edge, increasing; a non-number is never a duplicate
--   max_jobs              text   its slots
--   caps                  bytes  packed NodeCaps
--   load                  bytes  packed NodeLoad
--   pools                 text   pools from now on, sorted, separated by commas
--   pools_before          text   pools that the caller expects to be stored
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer is offline
--   record_ttl_ms         int    TTL of the record, renewed by heartbeats
--   leases_ms             text   TTL of the set of leases, renewed by heartbeats
-- RETURNS
--   verdict               text   ok | copy | pools: no change, pools_before is wrong
--   pools_stored          text   stored pools
--   epoch                 int    of this connection
--   status                text   status in the record
--   used                  int    slots in use
--   version               int    of the node

local record = redis.call('HMGET', node, 'epoch', 'edge', 'ref', 'edge_before', 'ref_before')
local last = tonumber(record[1]) or 0
local edge_before, ref_before = record[4] or '', record[5] or ''
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
local state = read_node_state(node)

-- True for the registration that `its_edge` made with `its_ref`, or an earlier one of that edge.
local number = tonumber(ref)
local function is_copy(its_edge, its_ref)
  return its_edge == edge and number and tonumber(its_ref or '') and number <= tonumber(its_ref)
end
if is_copy(record[2], record[3]) or is_copy(edge_before, ref_before) then
  local in_force = record[2] == edge and number == tonumber(record[3])
  local used = tonumber(redis.call('HGET', ledger, node_id)) or 0
  local version = tonumber(redis.call('ZSCORE', changes, node_id)) or 0
  return {'copy', stored, in_force and last or last - 1, state.status, used, version}
end
if stored ~= pools_before then return {'pools', stored, 0, '', 0, 0} end

if record[2] and record[2] ~= edge then edge_before, ref_before = record[2], record[3] or '' end
local epoch = math.max(last + 1, now_ms)
local epoch_text = string.format('%.0f', epoch)
node_state_step(state, 'register', now_ms)
-- The fields that commits read come first in the record, where the lookup is fastest.
redis.call('HSET', node, 'status', state.status, 'max_jobs', max_jobs, 'last_seen_ms', now_text, 'edge', edge,
  'epoch', epoch_text, 'ref', ref, 'edge_before', edge_before, 'ref_before', ref_before)
write_node_state(node, state)
redis.call('PEXPIRE', node, record_ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)
redis.call('ZADD', nodes, now_text, node_id)

local used = count_live_leases(leases)
local due_ms = node_state_due_ms(state, {heartbeat_timeout_ms = heartbeat_timeout_ms, record_ttl_ms = record_ttl_ms})
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local version = publish_node(lists, node_id, state, due_ms, epoch_text, edge, load, used)
return {'ok', pools, epoch, state.status, used, version}
