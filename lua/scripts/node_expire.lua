-- node_expire: apply timeouts to a node: offline without heartbeats, unlisted when detached or offline for too long.
-- Idempotent: of several callers exactly one gets `changed`.
-- USES node_state, node_index
-- KEYS
--   node                  hash   the node's record
--   nodes                 zset   last heartbeat of each node; one per cell
--   due                   zset   time of each node's next timeout; one per cell
--   ledger                hash   slots in use and versions; one per cell
--   changes               zset   version of each changed node; one per cell
--   view                  hash   view of the nodes, read by snapshots; one per cell
--   speeds                hash   measured speeds of the nodes; one per cell
--   marks                 hash   services that nodes lack; one per cell
-- KEYS per leave
--   pool                  set    a pool that the node leaves
-- ARGV
--   node_id               text   id of the node
--   pools_before          text   pools that the caller expects to be stored
--   tombstones_max        int    maximum number of removed nodes in `changes`
--   heartbeat_timeout_ms  int    a node without a heartbeat for longer is offline
--   reconnect_grace_ms    int    reconnect grace of a detached node
--   record_ttl_ms         int    TTL of the record, renewed by heartbeats
-- RETURNS
--   verdict               text   changed: its status | same | pools: no change, pools_before is wrong
--   pools_stored          text   stored pools
--   edge                  text   edge of its last connection
--   epoch                 int    epoch of its connection
--   status                text   new status
--   reason                text   reason of the status

local lists = {nodes = nodes, due = due, ledger = ledger, changes = changes, view = view, speeds = speeds,
  marks = marks}
local limits = {heartbeat_timeout_ms = heartbeat_timeout_ms, reconnect_grace_ms = reconnect_grace_ms,
  record_ttl_ms = record_ttl_ms}
local record = redis.call('HMGET', node, 'epoch', 'edge')
local state = read_node_state(node)
local before = state.status
node_state_step(state, 'time', now_ms, limits)
if state.seen_ms > 0 then
  if state.status ~= before then
    write_node_state(node, state)
    publish_node(lists, node_id, state, node_state_due_ms(state, limits), record[1], record[2])
  else
    redis.call('ZADD', due, node_state_due_ms(state, limits), node_id)
  end
else
  -- Detached or offline for too long, or its record expired.
  local stored = redis.call('HGET', view, node_id .. '#pools') or ''
  if stored ~= pools_before then return {'pools', stored, '', 0, '', ''} end
  if record[1] then write_node_state(node, state) end
  for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
  unlist_node(lists, node_id, tombstones_max)
end
local verdict = state.status ~= before and 'changed' or 'same'
return {verdict, '', record[2] or '', tonumber(record[1]) or 0, state.status, state.reason}
