--- Byte pointers, and the libc searches that run at memory speed.
-- The names are private aliases of libc's symbols, so they never clash with declarations of other modules.
local ffi = require "ffi"

ffi.cdef [[
const uint8_t *tw_memchr(const uint8_t *s, int c, size_t n) __asm__("memchr");
const uint8_t *tw_memmem(const uint8_t *s, size_t n, const uint8_t *what, size_t size) __asm__("memmem");
int tw_memcmp(const uint8_t *a, const uint8_t *b, size_t n) __asm__("memcmp");
double tw_strtod(const uint8_t *s, uint8_t **end) __asm__("strtod");
const int32_t *tw_wmemchr(const int32_t *s, int32_t c, size_t n) __asm__("wmemchr");  /* glibc's wchar_t has 32 bits */
]]

local cast = ffi.cast
local memchr, memcmp, memmem, strtod = ffi.C.tw_memchr, ffi.C.tw_memcmp, ffi.C.tw_memmem, ffi.C.tw_strtod
local wmemchr = ffi.C.tw_wmemchr
local pointer, address = ffi.typeof("const uint8_t *"), ffi.typeof("intptr_t")
local tonumber = tonumber

local _M = {}

--- The bytes of a Lua string. The caller keeps the string referenced while it uses the pointer.
-- Lua ends every string with a NUL that is not counted, so `p[#s]` may be read and is 0.
-- @tparam string s
-- @return const uint8_t *
function _M.of(s)
  -- No tail call: LuaJIT would not compile it where the caller is not compiled.
  local p = cast(pointer, s)
  return p
end

--- Whether `n` bytes at `a` and at `b` are the same.
function _M.same(a, b, n)
  return memcmp(a, b, n) == 0
end

--- The number that is written at `p` as JSON has them; something else must follow it.
function _M.number(p)
  local x = strtod(p, nil)
  return x
end

--- Index of the first byte `c` in `[from, to)` of `p`, or -1.
function _M.find(p, c, from, to)
  if from >= to then
    return -1
  end
  local at = memchr(p + from, c, to - from)
  if at == nil then
    return -1
  end
  return at - p
end

--- Index of the first of `n` numbers of 32 bits that is `x`; a negative number where none is. Of a few numbers too this
-- is better than a loop, which would end what LuaJIT compiles as one, and have each of its ends compiled apart.
-- @param list const int32_t *
function _M.index(list, x, n)
  -- No branch: the null pointer, where none is found, lies before every list. (Taken from each other as pointers they
  -- would have to be near: LuaJIT's interpreter keeps 32 bits of the difference.)
  local k = tonumber(cast(address, wmemchr(list, x, n)) - cast(address, list)) / 4
  return k
end

--- Index of the first place of the string `what` in `[from, to)` of `p`, or -1.
function _M.find_text(p, what, from, to)
  if from >= to then
    return -1
  end
  local at = memmem(p + from, to - from, what, #what)
  if at == nil then
    return -1
  end
  return at - p
end

--- Index of the last place of the string `what` in `[0, n)` of `p`, or -1.
function _M.find_last(p, what, n)
  local last, from = -1, 0
  while true do
    local at = memmem(p + from, n - from, what, #what)
    if at == nil then
      return last
    end
    last = at - p
    from = last + 1
  end
end

return _M
