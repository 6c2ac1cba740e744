-- speed: measured speed of a node; mesh/states/speed.py is its specification, a test compares both bit by bit.
-- A speed is {mean, variance, jobs, at_ms}.

local function observe(speed, ratio, time_ms, jobs_remembered, half_life_ms)
  if not speed then return {ratio, 0, 1, time_ms} end
  local faded = speed[3] / (1 + math.max(0, time_ms - speed[4]) / half_life_ms)
  local jobs = math.min(faded + 1, jobs_remembered)
  local share = 1 / jobs
  local off = ratio - speed[1]
  return {speed[1] + share * off, (1 - share) * (speed[2] + share * off * off), jobs, time_ms}
end

-- Returns the node's speeds. Unreadable data counts as empty: a result must never fail because of it.
local function known_speeds(speeds, node_id)
  local is_read, known = pcall(cmsgpack.unpack, redis.call('HGET', speeds, node_id) or '')
  return is_read and type(known) == 'table' and known or {}
end

-- Updates the speeds by one job; returns the updated ones, packed. Beyond `pairs_max` pairs only the total changes.
local function update_speeds(speeds, node_id, pair, ratio, jobs_remembered, half_life_ms, pairs_max)
  local known = known_speeds(speeds, node_id)
  local total = observe(known['*'], ratio, now_ms, jobs_remembered, half_life_ms)
  local learned = {['*'] = total}
  local has_room = pair ~= '*'
  if has_room and not known[pair] then
    local count = 0
    for name in pairs(known) do count = count + (name == '*' and 0 or 1) end
    has_room = count < pairs_max
  end
  if has_room then
    learned[pair] = observe(known[pair], ratio, now_ms, jobs_remembered, half_life_ms)
    known[pair] = learned[pair]
  end
  known['*'] = total
  redis.call('HSET', speeds, node_id, cmsgpack.pack(known))
  return cmsgpack.pack(learned)
end
