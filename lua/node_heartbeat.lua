-- node_heartbeat: renew a node's record and load, drop lapsed leases, set the used count right.
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
--   epoch         int    of the connection
--   status        text   ready | ...
--   load          bytes  packed NodeLoad
--   caps          bytes  packed NodeCaps; empty: capabilities, slots and pools stay as they are
--   max_jobs      text   its slots
--   pools         text   pools from now on, sorted, separated by commas
--   pools_before  text   pools that the caller believes are stored
--   ttl_ms        text   life of the record without another heartbeat
--   leases_ms     text   life of the set of leases without another heartbeat
-- RETURNS
--   verdict       text   ok | superseded | unknown | pools: nothing was done, because pools_before is wrong
--   used          int    slots in use
--   version       int    of the cell
--   pools_stored  text   pools that are stored

local record = redis.call('HMGET', node, 'epoch', 'status')
local known = tonumber(record[1]) or 0
-- A later connection that has ended keeps nobody out: who lives registers again.
if known > epoch and record[2] ~= 'offline' then return {'superseded', 0, 0, ''} end
-- A node that was taken off the lists comes back by registering, never by a heartbeat that was late.
if known ~= epoch or record[2] == 'offline' or redis.call('HEXISTS', view, node_id) == 0 then
  return {'unknown', 0, 0, ''}
end

local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if caps ~= '' then
  if stored ~= pools_before then return {'pools', 0, 0, stored} end
  for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
  for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
  redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)
  redis.call('HSET', node, 'max_jobs', max_jobs)
  stored = pools
end
redis.call('HSET', node, 'status', status, 'edge', edge, 'last_seen_ms', now_text)
redis.call('PEXPIRE', node, ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)

local used = live_leases(leases)
local now = string.format('%.0f', epoch) .. ' ' .. status .. ' ' .. edge .. ' ' .. load
local version = list_node(nodes, ledger, changes, view, node_id, now, used)
return {'ok', used, version, stored}
