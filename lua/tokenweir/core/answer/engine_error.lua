--- What the text of an engine's error says of its memory.
--
-- "out_of_memory": the GPU's, after which the process is rarely of use. "kv_full": the KV cache ran full, which engines
-- survive; requests fell to it all the same.
local find, lower = string.find, string.lower

local TEXTS = {
  { "out of memory", "out_of_memory" },            -- CUDA, HIP, PyTorch, Metal
  { "outofmemory", "out_of_memory" },              -- torch.OutOfMemoryError
  { "alloc_failed", "out_of_memory" },             -- CUBLAS_STATUS_ALLOC_FAILED
  { "cudaerrormemoryallocation", "out_of_memory" },
  { "kv memory is full", "kv_full" },
  { "kv cache is full", "kv_full" },
  { "context size has been exceeded", "kv_full" },  -- llama.cpp, whose slots share one KV cache
  { "failed to find a memory slot", "kv_full" },    -- llama.cpp
  { "no available memory for the cache blocks", "out_of_memory" },  -- vLLM at start
}

--- Engines put the reason at the beginning; no more of an answer is read.
local MOST = 4096

local _M = { MOST = MOST }

--- @param text string, an error's body or event
-- @return "out_of_memory", "kv_full" or nil
function _M.memory(text)
  text = lower(#text > MOST and text:sub(1, MOST) or text)
  for k = 1, #TEXTS do
    if find(text, TEXTS[k][1], 1, true) then
      return TEXTS[k][2]
    end
  end
  return nil
end

return _M
