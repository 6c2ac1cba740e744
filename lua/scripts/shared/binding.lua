-- binding: where a request is bound, as one line: attempt, job, node, the node's edge, its epoch.

-- The attempt and the job of a binding.
local function read_binding(bound)
  local attempt, job_id = string.match(bound, '^(%d+) (%S+) ')
  if not attempt then error('unreadable binding: ' .. bound) end
  return tonumber(attempt), job_id
end
