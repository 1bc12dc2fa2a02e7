--- What kinds of inference servers do, each in its own way: by the name that `backends[].engine` has.
--
--   preempts  where it is full it takes the memory of a running request back and computes that again later; what is
--             not known to do so may fail all it has
--   stops     it stops any request when its connection closes; others run one that does not stream on to its end
--   closes    it closes the connection after a streamed answer without having said so: llama.cpp's chunks end, then it
--             closes. A request that took such a connection from the pool in between could only be told that the
--             backend broke, since nobody knows what became of it; these get a connection each time
--   answers   its HTTP side goes on while it computes; of others, silence while they work may be their way
local KINDS = {
  vllm = { preempts = true, stops = true, closes = false, answers = true },
  sglang = { preempts = true, stops = true, closes = false, answers = true },
  tgi = { preempts = false, stops = false, closes = false, answers = true },
  trtllm = { preempts = false, stops = false, closes = false, answers = true },
  llamacpp = { preempts = false, stops = false, closes = true, answers = true },
  ollama = { preempts = false, stops = false, closes = false, answers = true },
}
local UNKNOWN = { preempts = false, stops = false, closes = false, answers = false }

local _M = { KINDS = KINDS }

--- @param name string, what the snapshot says; empty or another: not known
-- @return table of the members above, never written
function _M.traits(name)
  return KINDS[name] or UNKNOWN
end

return _M
