-- listing: a node on the lists of its cell, and off them.
-- USES change

-- Writes what snapshots read of the node (`now`: epoch, status, edge, packed load); returns the new version.
local function list_node(nodes, ledger, changes, view, node_id, now, used)
  redis.call('ZADD', nodes, now_text, node_id)
  redis.call('HSET', view, node_id .. '#now', now)
  local last = redis.call('HGET', ledger, '#version')
  local version, text = bump(last, changes, node_id)
  -- The first version of a cell's life: who has read an earlier one has read what is lost.
  if not last then redis.call('HSET', ledger, '#born', text) end
  redis.call('HSET', ledger, node_id, used, node_id .. '#v', text, '#version', text)
  return version
end

-- Takes the node off every list but `changes`, where it stays as a tombstone so that snapshots hear of it.
-- Beyond `tombstones_max` the oldest go; a few per call, so that no call is long.
local function unlist_node(nodes, ledger, changes, view, node_id, tombstones_max)
  redis.call('ZREM', nodes, node_id)
  redis.call('HDEL', view, node_id, node_id .. '#now', node_id .. '#pools')
  redis.call('HDEL', ledger, node_id, node_id .. '#v')
  local _, text = bump(redis.call('HGET', ledger, '#version'), changes, node_id)
  redis.call('HSET', ledger, '#version', text)
  if redis.call('ZCARD', changes) - redis.call('ZCARD', nodes) > tombstones_max then
    for _, old in ipairs(redis.call('ZRANGE', changes, 0, 15)) do
      if redis.call('HEXISTS', view, old) == 0 then redis.call('ZREM', changes, old) end
    end
  end
end
