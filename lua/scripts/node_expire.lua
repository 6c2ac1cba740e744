-- node_expire: what the passing of time does to a node: offline when silent, off the lists when away for too long.
-- Many may ask; the change happens once, and only its cause is told of it.
-- USES node_state, node_index
-- KEYS
--   node                  hash   the node's record
--   nodes                 zset   last seen, of the cell
--   due                   zset   when time changes a node next, of the cell
--   ledger                hash   slots in use and versions, of the cell
--   changes               zset   versions, of the cell
--   view                  hash   what snapshots read, of the cell
--   speeds                hash   what is known of speeds, of the cell
--   marks                 hash   what nodes lack, of the cell
-- KEYS per leave
--   pool                  set    a pool that the node is in
-- ARGV
--   node_id               text   which node
--   pools_before          text   pools that the caller believes are stored
--   tombstones_max        int    how many removed nodes `changes` may remember
--   heartbeat_timeout_ms  int    a node silent for longer is offline
--   reconnect_grace_ms    int    time that a detached node has to come back
--   record_ttl_ms         int    life of the record without a heartbeat
-- RETURNS
--   verdict               text   changed: its status | same | pools: nothing was done, because pools_before is wrong
--   pools_stored          text   pools that are stored
--   edge                  text   the edge that had it last
--   epoch                 int    of its connection
--   status                text   from now on
--   reason                text   why

local lists = {nodes = nodes, due = due, ledger = ledger, changes = changes, view = view, speeds = speeds,
  marks = marks}
local limits = {heartbeat_timeout_ms = heartbeat_timeout_ms, reconnect_grace_ms = reconnect_grace_ms,
  record_ttl_ms = record_ttl_ms}
local record = redis.call('HMGET', node, 'epoch', 'edge')
local life = read_life(node)
local before = life.status
life_step(life, 'time', now_ms, limits)
if life.seen_ms > 0 then
  if life.status ~= before then
    write_life(node, life)
    show_node(lists, node_id, life, life_due_ms(life, limits), record[1], record[2])
  else
    redis.call('ZADD', due, life_due_ms(life, limits), node_id)
  end
else
  -- Away for too long, or its record has lapsed.
  local stored = redis.call('HGET', view, node_id .. '#pools') or ''
  if stored ~= pools_before then return {'pools', stored, '', 0, '', ''} end
  if record[1] then write_life(node, life) end
  for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
  unlist_node(lists, node_id, tombstones_max)
end
local verdict = life.status ~= before and 'changed' or 'same'
return {verdict, '', record[2] or '', tonumber(record[1]) or 0, life.status, life.reason}
