std = "luajit"
max_line_length = 120
files["lua/tokenweir/*.lua"] = { std = "ngx_lua" }
files["lua/tokenweir/contract.lua"] = { max_line_length = false }
