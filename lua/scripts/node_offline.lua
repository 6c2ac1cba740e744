-- node_offline: remove a node from the lists and its pools, if the epoch is in force.
-- The record keeps its epoch and the leases stay: a node that reconnects still has the slots of its jobs.
-- USES node_state, node_index
-- KEYS
--   node            hash   the node's record
--   nodes           zset   last heartbeat of each node; one per cell
--   due             zset   time of each node's next timeout; one per cell
--   ledger          hash   slots in use and versions; one per cell
--   changes         zset   version of each changed node; one per cell
--   view            hash   view of the nodes, read by snapshots; one per cell
--   speeds          hash   measured speeds of the nodes; one per cell
--   marks           hash   services that nodes lack; one per cell
-- KEYS per leave
--   pool            set    a pool that the node leaves
-- ARGV
--   node_id         text   id of the node
--   epoch           int    epoch of the connection
--   reason          text   reason, for operators
--   pools_before    text   pools that the caller expects to be stored
--   tombstones_max  int    maximum number of removed nodes in `changes`
-- RETURNS
--   verdict         text   ok | stale: another epoch is in force | pools: no change, pools_before is wrong
--   pools_stored    text   stored pools

local state = read_node_state(node)
if tonumber(redis.call('HGET', node, 'epoch') or 0) ~= epoch or state.seen_ms == 0 then return {'stale', ''} end
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if stored ~= pools_before then return {'pools', stored} end

node_state_step(state, 'leave', now_ms, {}, reason)
write_node_state(node, state)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
local lists = {nodes = nodes, due = due, ledger = ledger, changes = changes, view = view, speeds = speeds,
  marks = marks}
unlist_node(lists, node_id, tombstones_max)
return {'ok', ''}
