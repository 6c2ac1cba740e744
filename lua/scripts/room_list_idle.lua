-- room_list_idle: rooms of a cell in which nobody spoke for long; reads only.
-- KEYS
--   rooms      zset   when somebody spoke last in each room, of the cell
-- ARGV
--   silent_ms  int    how long is long
--   limit      int    at most so many
-- RETURNS
--   codes      list   their codes, longest silent first

local until_text = string.format('%.0f', now_ms - silent_ms)
return redis.call('ZRANGEBYSCORE', rooms, '-inf', until_text, 'LIMIT', 0, limit)
