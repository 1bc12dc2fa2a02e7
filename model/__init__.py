"""The token-cost predictor's training: data, fit, export, evaluation. What decides is Lua, run through
LuaJIT."""
