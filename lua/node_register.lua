-- node_register: write a node's record for a new connection, its lists and its pools.
-- The epoch names the connection: a later registration always gets a higher one, even if Redis has forgotten the last.
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
--   status        text   ready | ...
--   max_jobs      text   its slots
--   caps          bytes  packed NodeCaps
--   load          bytes  packed NodeLoad
--   pools         text   pools from now on, sorted, separated by commas
--   pools_before  text   pools that the caller believes are stored
--   ttl_ms        text   life of the record without a heartbeat
--   leases_ms     text   life of the set of leases without a heartbeat
-- RETURNS
--   verdict       text   ok | pools: nothing was done, because pools_before is wrong
--   epoch         int    of this connection
--   used          int    slots in use
--   version       int    of the cell
--   pools_stored  text   pools that are stored

local stored = redis.call('HGET', view, node_id .. '#pools') or ''
if stored ~= pools_before then return {'pools', 0, 0, 0, stored} end

local last = tonumber(redis.call('HGET', node, 'epoch')) or 0
local epoch = math.max(last + 1, now_ms)
local epoch_text = string.format('%.0f', epoch)
redis.call('HSET', node, 'status', status, 'max_jobs', max_jobs, 'edge', edge, 'epoch', epoch_text,
  'last_seen_ms', now_text)
redis.call('PEXPIRE', node, ttl_ms)
redis.call('PEXPIRE', leases, leases_ms)
for _, leave in ipairs(leaves) do redis.call('SREM', leave.pool, node_id) end
for _, join in ipairs(joins) do redis.call('SADD', join.pool, node_id) end
redis.call('HSET', view, node_id, caps, node_id .. '#pools', pools)

local used = live_leases(leases)
local now = epoch_text .. ' ' .. status .. ' ' .. edge .. ' ' .. load
local version = list_node(nodes, ledger, changes, view, node_id, now, used)
return {'ok', epoch, used, version, pools}
