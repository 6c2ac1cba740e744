-- room_list_idle: idle rooms of a cell; read-only.
-- KEYS
--   rooms      zset   time of the last speech in each room; one per cell
-- ARGV
--   silent_ms  int    idle timeout of a room
--   limit      int    maximum number
-- RETURNS
--   codes      list   their codes, longest idle first

local until_text = string.format('%.0f', now_ms - silent_ms)
return redis.call('ZRANGEBYSCORE', rooms, '-inf', until_text, 'LIMIT', 0, limit)
