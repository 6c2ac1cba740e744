-- node_register: write a node's record for a new connection, its lists and its pools.
-- The epoch names the connection: a later registration always gets a higher one, even if Redis has forgotten the last.
-- Edges repeat what was not answered, and a copy may come late: it changes nothing. That of the connection in force is
-- answered with its epoch, that of an earlier one with an epoch that is in force no more.
-- USES lease, node_state, node_index
-- KEYS
--   node                  hash   the node's record
--   leases                zset   its slots in use
--   nodes                 zset   last seen, of the cell
--   due                   zset   when time changes a node next, of the cell
--   ledger                hash   slots in use and versions, of the cell
--   changes               zset   versions, of the cell
--   view                  hash   what snapshots read, of the cell
-- KEYS per join
--   pool                  set    a pool that the node is in from now on
-- KEYS per leave
--   pool                  set    a pool that it was in and is no longer
-- ARGV
--   node_id               text   which node
--   edge                  text   the edge that holds its socket
--   ref                   text   number of this registration at its edge, growing; what is no number is never a copy
--   max_jobs              text   its slots
--   caps                  bytes  packed NodeCaps
--   load                  bytes  packed NodeLoad
--   pools                 text   pools from now on, sorted, separated by commas
--   pools_before          text   pools that the caller believes are stored
--   heartbeat_timeout_ms  int    a node silent for longer is offline
--   record_ttl_ms         int    life of the record without a heartbeat
--   leases_ms             text   life of the set of leases without a heartbeat
-- RETURNS
--   verdict               text   ok | copy | pools: nothing was done, because pools_before is wrong
--   pools_stored          text   pools that are stored
--   epoch                 int    of this connection
--   status                text   as the record has it
--   used                  int    slots in use
--   version               int    of the node

local record = redis.call('HMGET', node, 'epoch', 'edge', 'ref', 'edge_before', 'ref_before')
local last = tonumber(record[1]) or 0
local edge_before, ref_before = record[4] or '', record[5] or ''
local stored = redis.call('HGET', view, node_id .. '#pools') or ''
local life = read_life(node)

-- Is this a registration that `its_edge` made with `its_ref`, or an earlier one of that edge?
local number = tonumber(ref)
local function is_copy(its_edge, its_ref)
  return its_edge == edge and number and tonumber(its_ref or '') and number <= tonumber(its_ref)
end
if is_copy(record[2], record[3]) or is_copy(edge_before, ref_before) then
  local in_force = record[2] == edge and number == tonumber(record[3])
  local used = tonumber(redis.call('HGET', ledger, node_id)) or 0
  local version = tonumber(redis.call('ZSCORE', changes, node_id)) or 0
  return {'copy', stored, in_force and last or last - 1, life.status, used, version}
end
if stored ~= pools_before then return {'pools', stored, 0, '', 0, 0} end

if record[2] and record[2] ~= edge then edge_before, ref_before = record[2], record[3] or '' end
local epoch = math.max(last + 1, now_ms)
local epoch_text = string.format('%.0f', epoch)
life_step(life, 'register', now_ms)
-- What commits look at comes first in the record, where it is found soonest.
redis.call('HSET', node, 'status', life.status, 'max_jobs', max_jobs, 'last_seen_ms', now_text, 'edge', edge,
  'epoch', epoch_text, 'ref', ref, 'edge_before', edge_before, 'ref_before', ref_before)
write_life(node, life)
redis.call('PEXPIRE', node, record_ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)
redis.call('ZADD', nodes, now_text, node_id)

local used = live_leases(leases)
local due_ms = life_due_ms(life, {heartbeat_timeout_ms = heartbeat_timeout_ms, record_ttl_ms = record_ttl_ms})
local lists = {due = due, ledger = ledger, changes = changes, view = view}
local version = show_node(lists, node_id, life, due_ms, epoch_text, edge, load, used)
return {'ok', pools, epoch, life.status, used, version}
