-- commit: binds a request to the first candidate with a free slot, leases the slot and creates the job.
-- USES capacity, lease, job, binding

-- Returns the reply (verdict, binding, the node's slots in use, its version, reasons, then per candidate skipped for its
-- slots: index, slots in use, version), and the candidate that was taken, if any. Idempotent: a request bound by this
-- attempt or a higher one keeps its binding. `limits`: heartbeat_timeout_ms, lease_ms, bound_ms, keep_ms, leases_ms.
-- `counted`: leases key -> slots in use, where the caller has counted them and will write the ledger itself.
local function commit_request(binding, attempt, request, about, candidates, limits, counted)
  local bound = redis.call('GET', binding)
  if bound and read_binding(bound) >= attempt then return {'bound', bound, 0, 0, ''} end

  local reasons, reply = {}, {'unavailable', '', 0, 0, ''}
  for place, candidate in ipairs(candidates) do
    local member = candidate.job_id .. '#' .. attempt
    local known = counted[candidate.leases]
    local reason, used, node_edge, epoch = check_capacity(candidate.node, candidate.leases, member, candidate.expected,
      limits.heartbeat_timeout_ms, known)
    if reason == '' then
      used = add_lease(candidate.leases, used, member, limits.lease_ms, limits.leases_ms)
      create_job(candidate.job, limits.keep_ms, attempt .. ' ' .. candidate.node_id, request, about)
      bound = table.concat({attempt, candidate.job_id, candidate.node_id, node_edge, epoch}, ' ')
      redis.call('SET', binding, bound, 'PX', limits.bound_ms)
      reply[1], reply[2], reply[3] = 'new', bound, used
      if known then
        counted[candidate.leases] = used
      else
        reply[4] = update_ledger(used, candidate.ledger, candidate.changes, candidate.node_id)
      end
      return reply, candidate
    end
    reasons[place] = reason
    if used then
      reply[1] = 'full'
      local at = #reply
      reply[at + 1], reply[at + 2] = place, used
      reply[at + 3] = update_ledger(used, candidate.ledger, candidate.changes, candidate.node_id)
      if known then counted[candidate.leases] = used end
    end
  end
  reply[5] = table.concat(reasons, ',')
  return reply
end
