-- node_drain: an operator's command. A draining node gets no work until it is resumed, or registers after the drain's end.
-- USES node_state, node_index
-- KEYS
--   node                  hash   the node's record
--   due                   zset   when time changes a node next, of the cell
--   ledger                hash   slots in use and versions, of the cell
--   changes               zset   versions, of the cell
--   view                  hash   what snapshots read, of the cell
-- ARGV
--   node_id               text   which node
--   event                 text   drain | resume
--   for_ms                int    time until the drain's end
--   reason                text   why, for people
--   heartbeat_timeout_ms  int    a node silent for longer is offline
--   reconnect_grace_ms    int    time that a detached node has to come back
--   record_ttl_ms         int    life of the record without a heartbeat
-- RETURNS
--   known                 int    1: the node is on the lists
--   status                text   from now on
--   edge                  text   the edge that holds its socket
--   epoch                 int    of its connection
--   drain_until_ms        int    when the drain ends; 0: there is none

local record = redis.call('HMGET', node, 'epoch', 'edge')
local life = read_life(node)
if life.seen_ms == 0 or redis.call('HEXISTS', view, node_id) == 0 then return {0, '', '', 0, 0} end
life_step(life, event, now_ms, {}, reason, now_ms + for_ms)
write_life(node, life)
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local limits = {heartbeat_timeout_ms = heartbeat_timeout_ms, reconnect_grace_ms = reconnect_grace_ms,
  record_ttl_ms = record_ttl_ms}
show_node(lists, node_id, life, life_due_ms(life, limits), record[1], record[2])
return {1, life.status, record[2], tonumber(record[1]), life.drain_until_ms}
