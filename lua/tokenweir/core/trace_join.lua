--- Where the ways that LuaJIT compiles apart come together again:
--
--     local join = fresh.load "tokenweir.core.trace_join"
--     ...
--     join()
--
-- What follows a branch is compiled once for each way out of it that is often taken, each time to the end of the phase.
-- After a choice of many outcomes there are dozens of such copies, of some ten KB each, and the one that is wanted is
-- seldom in the processor's caches. But a way ends where it comes to a loop that is compiled already, and all that come
-- there go on in one. Each place needs a loop of its own (`fresh.load`): what goes on from it is compiled with it.
local TURNS = 4    -- fewer, and LuaJIT mostly finds the loop ending when it has made up its mind to compile it
local CALLS = 256  -- after which it has

local function join()
  for _ = 1, TURNS do
  end
end

-- At once: who came by earlier would have been compiled to the end.
for _ = 1, CALLS do
  join()
end

return join
