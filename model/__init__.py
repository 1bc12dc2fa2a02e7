"""The token-cost predictor's training: data, fit, export, evaluation. What decides is Lua, run through
LuaJIT."""

import os

# Read when OpenMP is loaded, so before anything else: threads that wait for each other are to sleep. Training
# shares its host with what serves, and where they spin it takes three times as long on two busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
