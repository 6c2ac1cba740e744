-- node_offline: take a node off the lists and out of its pools, if this connection is still the node's own.
-- The record keeps its epoch and the leases stay: a node that comes back finds its jobs' slots held.
-- USES node_state, node_index
-- KEYS
--   node            hash   the node's record
--   nodes           zset   last seen, of the cell
--   due             zset   when time changes a node next, of the cell
--   ledger          hash   slots in use and versions, of the cell
--   changes         zset   versions, of the cell
--   view            hash   what snapshots read, of the cell
--   speeds          hash   what is known of speeds, of the cell
--   marks           hash   what nodes lack, of the cell
-- KEYS per leave
--   pool            set    a pool that the node is in
-- ARGV
--   node_id         text   which node
--   epoch           int    of the connection
--   reason          text   why, for people
--   pools_before    text   pools that the caller believes are stored
--   tombstones_max  int    how many removed nodes `changes` may remember
-- RETURNS
--   verdict         text   ok | stale: not this connection | pools: nothing was done, because pools_before is wrong
--   pools_stored    text   pools that are stored

local life = read_life(node)
if tonumber(redis.call('HGET', node, 'epoch') or 0) ~= epoch or life.seen_ms == 0 then return {'stale', ''} end
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if stored ~= pools_before then return {'pools', stored} end

life_step(life, 'leave', now_ms, {}, reason)
write_life(node, life)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
local lists = {nodes = nodes, due = due, ledger = ledger, changes = changes, view = view, speeds = speeds,
  marks = marks}
unlist_node(lists, node_id, tombstones_max)
return {'ok', ''}
