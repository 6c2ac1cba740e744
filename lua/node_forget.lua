-- node_forget: remove what is left of a node that nobody took offline, once it has been silent too long.
-- USES listing
-- KEYS
--   node            hash   the node's record
--   nodes           zset   last seen, of the cell
--   ledger          hash   slots in use and versions, of the cell
--   changes         zset   versions, of the cell
--   view            hash   what snapshots read, of the cell
-- KEYS per leave
--   pool            set    a pool that the node is in
-- ARGV
--   node_id         text   which node
--   silent_ms       int    how long is too long
--   pools_before    text   pools that the caller believes are stored
--   tombstones_max  int    how many removed nodes `changes` may remember
-- RETURNS
--   verdict         text   ok | alive | pools: nothing was done, because pools_before is wrong

local seen_ms = tonumber(redis.call('ZSCORE', nodes, node_id))
if not seen_ms or seen_ms > now_ms - silent_ms then return {'alive'} end
if (redis.call('HGET', view, node_id .. '#pools') or '') ~= pools_before then return {'pools'} end

if redis.call('EXISTS', node) == 1 then redis.call('HSET', node, 'status', 'offline', 'offline_reason', 'silent') end
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
unlist_node(nodes, ledger, changes, view, node_id, tombstones_max)
return {'ok'}
