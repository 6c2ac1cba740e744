-- node_index: a node on the lists of its cell, and off them. `lists` holds the keys of the cell by their names.
-- USES version

-- Writes what snapshots read of the node's life; returns the new version. `load` and `used` only if they are news.
local function show_node(lists, node_id, life, due_ms, epoch, edge, load, used)
  redis.call('ZADD', lists.due, due_ms, node_id)
  local now = table.concat({epoch, life.status, edge, string.format('%.0f', life.detached_ms),
    string.format('%.0f', life.drain_until_ms), life.reason}, ' ')
  local last = redis.call('HGET', lists.ledger, '#version')
  local version, text = bump(last, lists.changes, node_id)
  if load then
    redis.call('HSET', lists.view, node_id .. '#now', now, node_id .. '#load', load)
    redis.call('HSET', lists.ledger, node_id, used, node_id .. '#v', text, '#version', text)
  else
    redis.call('HSET', lists.view, node_id .. '#now', now)
    redis.call('HSET', lists.ledger, node_id .. '#v', text, '#version', text)
  end
  -- The first version of a cell's life: who has read an earlier one has read what is lost.
  if not last then redis.call('HSET', lists.ledger, '#born', text) end
  return version
end

-- Takes the node off every list but `changes`, where it stays as a tombstone so that snapshots hear of it.
-- Beyond `tombstones_max` the oldest go; a few per call, so that no call is long.
local function unlist_node(lists, node_id, tombstones_max)
  redis.call('ZREM', lists.nodes, node_id)
  redis.call('ZREM', lists.due, node_id)
  redis.call('HDEL', lists.view, node_id, node_id .. '#now', node_id .. '#load', node_id .. '#pools')
  redis.call('HDEL', lists.ledger, node_id, node_id .. '#v', node_id .. '#s', node_id .. '#m', node_id .. '#d')
  redis.call('HDEL', lists.speeds, node_id)
  redis.call('HDEL', lists.marks, node_id)
  local _, text = bump(redis.call('HGET', lists.ledger, '#version'), lists.changes, node_id)
  redis.call('HSET', lists.ledger, '#version', text)
  if redis.call('ZCARD', lists.changes) - redis.call('ZCARD', lists.nodes) > tombstones_max then
    for _, old in ipairs(redis.call('ZRANGE', lists.changes, 0, 15)) do
      if redis.call('HEXISTS', lists.view, old) == 0 then redis.call('ZREM', lists.changes, old) end
    end
  end
end
