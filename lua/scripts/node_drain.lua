-- node_drain: drain or resume a node. A draining node gets no jobs until resumed, or registered after the drain's end.
-- USES node_state, node_index
-- KEYS
--   node                  hash   the node's record
--   due                   zset   time of each node's next timeout; one per cell
--   ledger                hash   slots in use and versions; one per cell
--   changes               zset   version of each changed node; one per cell
--   view                  hash   view of the nodes, read by snapshots; one per cell
-- ARGV
--   node_id               text   id of the node
--   event                 text   drain | resume
--   for_ms                int    duration of the drain
--   reason                text   reason, for operators
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer is offline
--   reconnect_grace_ms    int    reconnect grace of a detached node
--   record_ttl_ms         int    TTL of the record, renewed by heartbeats
-- RETURNS
--   known                 int    1: the node is listed
--   status                text   new status
--   edge                  text   the edge that holds its socket
--   epoch                 int    epoch of its connection
--   drain_until_ms        int    when the drain ends; 0: there is none

local record = redis.call('HMGET', node, 'epoch', 'edge')
local state = read_node_state(node)
if state.seen_ms == 0 or redis.call('HEXISTS', view, node_id) == 0 then return {0, '', '', 0, 0} end
node_state_step(state, event, now_ms, {}, reason, now_ms + for_ms)
write_node_state(node, state)
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local limits = {heartbeat_timeout_ms = heartbeat_timeout_ms, reconnect_grace_ms = reconnect_grace_ms,
  record_ttl_ms = record_ttl_ms}
publish_node(lists, node_id, state, node_state_due_ms(state, limits), record[1], record[2])
return {1, state.status, record[2], tonumber(record[1]), state.drain_until_ms}
