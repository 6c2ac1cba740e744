-- node_detach: a node's socket closed. It stays on the lists for a while, because it may come back.
-- USES node_state, node_index
-- KEYS
--   node                hash   the node's record
--   due                 zset   when time changes a node next, of the cell
--   ledger              hash   slots in use and versions, of the cell
--   changes             zset   versions, of the cell
--   view                hash   what snapshots read, of the cell
-- ARGV
--   node_id             text   which node
--   epoch               int    of the connection that ended
--   reason              text   why, for people
--   reconnect_grace_ms  int    time that it has to come back
-- RETURNS
--   verdict             text   ok | stale: not this connection, or known already

local record = redis.call('HMGET', node, 'epoch', 'edge')
local life = read_life(node)
if tonumber(record[1]) ~= epoch or life.seen_ms == 0 or life.detached_ms > 0 then return {'stale'} end
life_step(life, 'detach', now_ms, {}, reason)
write_life(node, life)
local lists = {due = due, ledger = ledger, changes = changes, view = view}
show_node(lists, node_id, life, life_due_ms(life, {reconnect_grace_ms = reconnect_grace_ms}), record[1], record[2])
return {'ok'}
