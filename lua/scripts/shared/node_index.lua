-- node_index: adds nodes to the lists of their cell and removes them. `lists`: the keys of the cell by name.
-- USES version

-- Writes the node's state for snapshots; returns the new version. `load` and `used` are optional.
local function publish_node(lists, node_id, state, due_ms, epoch, edge, load, used)
  redis.call('ZADD', lists.due, due_ms, node_id)
  local now = table.concat({epoch, state.status, edge, string.format('%.0f', state.detached_ms),
    string.format('%.0f', state.drain_until_ms), state.reason}, ' ')
  local last = redis.call('HGET', lists.ledger, '#version')
  local version, text = next_version(last, lists.changes, node_id)
  if load then
    redis.call('HSET', lists.view, node_id .. '#now', now, node_id .. '#load', load)
    redis.call('HSET', lists.ledger, node_id, used, node_id .. '#v', text, '#version', text)
  else
    redis.call('HSET', lists.view, node_id .. '#now', now)
    redis.call('HSET', lists.ledger, node_id .. '#v', text, '#version', text)
  end
  -- First version after the cell was created: a reader with an earlier one has read data that is lost.
  if not last then redis.call('HSET', lists.ledger, '#born', text) end
  return version
end

-- Removes the node from every list but `changes`, where it stays as a tombstone for snapshots.
-- Beyond `tombstones_max` the oldest tombstones are evicted, a few per call, which bounds the time of a call.
local function unlist_node(lists, node_id, tombstones_max)
  redis.call('ZREM', lists.nodes, node_id)
  redis.call('ZREM', lists.due, node_id)
  redis.call('HDEL', lists.view, node_id, node_id .. '#now', node_id .. '#load', node_id .. '#pools')
  redis.call('HDEL', lists.ledger, node_id, node_id .. '#v', node_id .. '#s', node_id .. '#m', node_id .. '#d')
  redis.call('HDEL', lists.speeds, node_id)
  redis.call('HDEL', lists.marks, node_id)
  local _, text = next_version(redis.call('HGET', lists.ledger, '#version'), lists.changes, node_id)
  redis.call('HSET', lists.ledger, '#version', text)
  if redis.call('ZCARD', lists.changes) - redis.call('ZCARD', lists.nodes) > tombstones_max then
    for _, old in ipairs(redis.call('ZRANGE', lists.changes, 0, 15)) do
      if redis.call('HEXISTS', lists.view, old) == 0 then redis.call('ZREM', lists.changes, old) end
    end
  end
end
