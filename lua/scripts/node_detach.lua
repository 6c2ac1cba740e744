-- node_detach: a node's socket closed. It stays listed during its reconnect grace.
-- USES node_state, node_index
-- KEYS
--   node                hash   the node's record
--   due                 zset   time of each node's next timeout; one per cell
--   ledger              hash   slots in use and versions; one per cell
--   changes             zset   version of each changed node; one per cell
--   view                hash   view of the nodes, read by snapshots; one per cell
-- ARGV
--   node_id             text   id of the node
--   epoch               int    epoch of the closed connection
--   reason              text   reason, for operators
--   reconnect_grace_ms  int    reconnect grace of a detached node
-- RETURNS
--   verdict             text   ok | stale: another epoch, or already detached

local record = redis.call('HMGET', node, 'epoch', 'edge')
local state = read_node_state(node)
if tonumber(record[1]) ~= epoch or state.seen_ms == 0 or state.detached_ms > 0 then return {'stale'} end
node_state_step(state, 'detach', now_ms, {}, reason)
write_node_state(node, state)
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local due_ms = node_state_due_ms(state, {reconnect_grace_ms = reconnect_grace_ms})
publish_node(lists, node_id, state, due_ms, record[1], record[2])
return {'ok'}
