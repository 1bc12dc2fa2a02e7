--- Limits of LuaJIT's compiler that the gateway needs; whoever requires this sets them.
--
-- A phase is one straight path through many small functions and stores. Beyond the defaults of 500 constants and 500
-- snapshots LuaJIT gives a trace up, and the rest of the path is interpreted. The loops over words, trees and long
-- bodies make some hundreds of traces beside those of the phases; beyond the limits all of them would be thrown away
-- and compiled anew.
--
-- A side way that leads into a loop is compiled only once the loop is. After four tries LuaJIT would leave it to the
-- interpreter for ever, all that follows with it; loops that turn seldom take up to twenty.
require("jit.opt").start("maxsnap=4000", "maxirconst=4000", "maxrecord=32000", "maxtrace=8000", "maxmcode=16384",
  "tryside=32")

return {}
