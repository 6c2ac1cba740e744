-- binding: binding of a request, as one line: attempt, job, node, the node's edge, its epoch.

-- Returns attempt and job of a binding.
local function read_binding(bound)
  local attempt, job_id = string.match(bound, '^(%d+) (%S+) ')
  if not attempt then error('unreadable binding: ' .. bound) end
  return tonumber(attempt), job_id
end
