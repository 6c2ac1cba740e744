-- node_register: write a node's record for a new connection, its lists and its pools.
-- The epoch names the connection: a later registration always gets a higher one, even if Redis has forgotten the last.
-- Edges repeat what was not answered, and a copy may come late: it changes nothing. That of the connection in force is
-- answered with its epoch, that of an earlier one with an epoch that is in force no more.
-- USES lease, listing
-- KEYS
--   node          hash   the node's record
--   leases        zset   its slots in use
--   nodes         zset   last seen, of the cell
--   ledger        hash   slots in use and versions, of the cell
--   changes       zset   versions, of the cell
--   view          hash   what snapshots read, of the cell
-- KEYS per join
--   pool          set    a pool that the node is in from now on
-- KEYS per leave
--   pool          set    a pool that it was in and is no longer
-- ARGV
--   node_id       text   which node
--   edge          text   the edge that holds its socket
--   ref           text   number of this registration at its edge, growing; what is no number is never a copy
--   status        text   ready | ...
--   max_jobs      text   its slots
--   caps          bytes  packed NodeCaps
--   load          bytes  packed NodeLoad
--   pools         text   pools from now on, sorted, separated by commas
--   pools_before  text   pools that the caller believes are stored
--   ttl_ms        text   life of the record without a heartbeat
--   leases_ms     text   life of the set of leases without a heartbeat
-- RETURNS
--   verdict       text   ok | copy | pools: nothing was done, because pools_before is wrong
--   epoch         int    of this connection
--   status_now    text   as the record has it
--   used          int    slots in use
--   version       int    of the cell
--   pools_stored  text   pools that are stored

local record = redis.call('HMGET', node, 'epoch', 'status', 'edge', 'ref', 'edge_before', 'ref_before')
local last = tonumber(record[1]) or 0
local edge_before, ref_before = record[5] or '', record[6] or ''
local stored = redis.call('HGET', view, node_id .. '#pools') or ''

-- Is this a registration that `its_edge` made with `its_ref`, or an earlier one of that edge?
local number = tonumber(ref)
local function is_copy(its_edge, its_ref)
  return its_edge == edge and number and tonumber(its_ref or '') and number <= tonumber(its_ref)
end
if is_copy(record[3], record[4]) or is_copy(edge_before, ref_before) then
  local in_force = record[3] == edge and number == tonumber(record[4])
  local known = redis.call('HMGET', ledger, node_id, '#version')
  return {'copy', in_force and last or last - 1, record[2], tonumber(known[1]) or 0, tonumber(known[2]) or 0, stored}
end
if stored ~= pools_before then return {'pools', 0, '', 0, 0, stored} end

if record[3] and record[3] ~= edge then edge_before, ref_before = record[3], record[4] or '' end
local epoch = math.max(last + 1, now_ms)
local epoch_text = string.format('%.0f', epoch)
redis.call('HSET', node, 'status', status, 'max_jobs', max_jobs, 'edge', edge, 'ref', ref, 'epoch', epoch_text,
  'last_seen_ms', now_text, 'edge_before', edge_before, 'ref_before', ref_before)
redis.call('PEXPIRE', node, ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)

local used = live_leases(leases)
local now = epoch_text .. ' ' .. status .. ' ' .. edge .. ' ' .. load
local version = list_node(nodes, ledger, changes, view, node_id, now, used)
return {'ok', epoch, status, used, version, pools}
