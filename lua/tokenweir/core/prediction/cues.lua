--- Words and pairs of words that say how long an answer is wanted, or of what kind, in English and Chinese, by hash.
--
-- A Chinese character counts as a word, so that "翻译" is a pair. Numbers that state a length ("in 50 words", "list 10",
-- "100字") are told by a number beside a unit; `stated.lua` puts the two together.
local bit = require "bit"
local fixed_array = require "tokenweir.core.fixed_array"
local word_hash = require "tokenweir.core.prediction.word_hash"

local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift
local byte, gmatch, lower = string.byte, string.gmatch, string.lower
local ipairs, pairs = ipairs, pairs

--- What can be cued, in the order of the features.
local NAMES = {
  "brief", "long", "essay", "list", "translate", "summary", "choice", "code", "explain", "steps", "format", "rewrite",
  "math", "classify", "greeting", "fact", "create", "role",
}

--- Units of a stated length, and words that are numbers.
local WORDS, SENTENCES, ITEMS, NUMBER = #NAMES + 1, #NAMES + 2, #NAMES + 3, #NAMES + 4

local PHRASES = {
  brief = {
    "brief", "briefly", "concise", "concisely", "short", "shorter", "shortly", "tldr", "quick", "quickly", "succinct",
    "succinctly", "simply", "one word", "single word", "one sentence", "single sentence", "one line", "in short",
    "keep it",
    "just the", "only the", "only answer", "answer only", "no explanation", "简短", "简要", "简洁", "简单", "一句", "一词", "精简",
    "只需", "直接",
  },
  long = {
    "detailed", "detail", "details", "comprehensive", "comprehensively", "thorough", "thoroughly", "elaborate",
    "extensive", "exhaustive", "in depth", "at length", "long", "longer", "complete", "full", "as many", "详细", "详尽",
    "深入", "全面", "完整", "尽量",
  },
  essay = {
    "essay", "article", "blog", "story", "stories", "poem", "song", "lyrics", "letter", "email", "speech", "novel",
    "chapter", "report", "paragraph", "paragraphs", "dialogue", "conversation", "monologue", "review", "文章", "作文", "故事",
    "小说", "诗歌", "邮件", "报告", "演讲", "写一", "篇文",
  },
  list = {
    "list", "lists", "bullet", "bullets", "enumerate", "top", "outline", "name", "列出", "列举", "清单", "列表", "给出",
  },
  translate = {
    "translate", "translation", "translated", "into english", "into french", "to spanish", "翻译", "译成", "译为",
  },
  summary = {
    "summarize", "summarise", "summary", "abstract", "paraphrase", "condense", "key points", "总结", "概括", "摘要", "概述",
  },
  choice = {
    "yes or", "true or", "yes no", "true false", "answer yes", "is it", "are there", "is there", "does the", "can i",
    "是否", "还是", "对吗", "对还",
  },
  code = {
    "code", "function", "program", "python", "javascript", "java", "sql", "regex", "html", "css", "bash", "algorithm",
    "implement", "class", "method", "query", "api", "def", "return", "import", "const", "array", "string", "script",
    "代码", "函数", "编程", "程序", "算法", "脚本",
  },
  explain = {
    "explain", "why", "describe", "how", "discuss", "analyze", "analyse", "compare", "difference", "differences",
    "reason", "reasons", "meaning", "解释", "为什", "如何", "怎么", "描述", "分析", "比较", "说明", "区别",
  },
  steps = {
    "step by", "steps", "reasoning", "think", "let s", "guide", "tutorial", "instructions", "plan", "步骤", "一步", "逐步",
    "教程",
  },
  format = { "json", "table", "csv", "yaml", "xml", "markdown", "format", "表格", "格式" },
  rewrite = {
    "rewrite", "rephrase", "correct", "fix", "edit", "improve", "proofread", "grammar", "convert", "改写", "润色", "修改",
    "纠正", "改成",
  },
  math = {
    "solve", "calculate", "compute", "equation", "sum", "how many", "how much", "percent", "total", "each", "per",
    "计算", "求解", "多少", "方程", "一共",
  },
  classify = {
    "classify", "extract", "category", "label", "sentiment", "choose", "select", "identify", "which", "option",
    "options", "following", "given", "分类", "提取", "选择", "哪个", "以下",
  },
  greeting = { "hi", "hello", "hey", "thanks", "thank", "bye", "你好", "谢谢", "再见" },
  fact = { "what is", "what s", "who", "when", "where", "capital", "什么", "是谁", "哪里", "几点", "何时" },
  create = {
    "write", "create", "generate", "make", "compose", "design", "develop", "build", "suggest", "生成", "创建", "编写", "设计",
  },
  role = { "pretend", "imagine", "roleplay", "character", "act as", "you are", "as if", "扮演", "假设", "想象" },
}

local UNITS = {
  [WORDS] = { "word", "words", "characters", "tokens", "字", "词" },
  [SENTENCES] = { "sentence", "sentences", "paragraph", "paragraphs", "line", "lines", "句", "段", "行" },
  [ITEMS] = {
    "examples", "ways", "reasons", "ideas", "tips", "facts", "things", "items", "points", "bullets", "questions",
    "names",
    "titles", "options", "suggestions", "个", "条", "点", "项", "种",
  },
}

local NUMBERS = {
  one = 1, two = 2, three = 3, four = 4, five = 5, six = 6, seven = 7, eight = 8, nine = 9, ten = 10, twenty = 20,
  fifty = 50, hundred = 100,
  ["一"] = 1, ["二"] = 2, ["两"] = 2, ["三"] = 3, ["四"] = 4, ["五"] = 5, ["六"] = 6, ["七"] = 7, ["八"] = 8, ["九"] = 9,
  ["十"] = 10, ["百"] = 100,
}

local MOST = 512
local SLOTS = 8192
--- Entries of one slot at most: `stated.lua` looks at so many without a loop.
local MOST_IN_SLOT = 3

local _M = {
  NAMES = NAMES, WORDS = WORDS, SENTENCES = SENTENCES, ITEMS = ITEMS, NUMBER = NUMBER, SLOTS = SLOTS, LIST = 4,
  --- A bit for each index of a word or pair: whether it may be a cue.
  is_cue = fixed_array.new("int32_t", word_hash.SPACE / 32),
  --- By the low bits of a hash: the first of the entries that may be meant, 0 for none.
  slot = fixed_array.new("uint16_t", SLOTS),
  --- Of an entry: its hash, the next one of the same slot, what it cues, and its value if it is a number.
  hash = fixed_array.new("int32_t", MOST),
  next = fixed_array.new("uint16_t", MOST),
  kind = fixed_array.new("uint8_t", MOST),
  value = fixed_array.new("double", MOST),
}

-- The hash of one word or one pair, as `split.lua` comes to it: ASCII letters run together, other characters stand
-- alone.
local function hash_of(phrase)
  local hashes, state = {}, nil
  for character in gmatch(lower(phrase) .. " ", "[%z\1-\127\194-\244][\128-\191]*") do
    local a, b, c = byte(character, 1, 3)
    if c then
      local point = bor(lshift(band(a, 15), 12), lshift(band(b, 63), 6), band(c, 63))
      hashes[#hashes + 1] = word_hash.finish(word_hash.step(0, point))
    elseif a == 32 then
      hashes[#hashes + 1] = state and word_hash.finish(state)
      state = nil
    else
      state = word_hash.step(state or 0, a)
    end
  end
  return hashes[2] and word_hash.pair(hashes[1], hashes[2]) or hashes[1]
end
_M.hash_of = hash_of

local entries = 0

local function learn(phrase, kind, value)
  entries = entries + 1
  assert(entries < MOST, phrase)
  local h = hash_of(phrase)
  local at = band(h, SLOTS - 1)
  local before, depth = _M.slot[at], 1
  while before ~= 0 do
    before, depth = _M.next[before], depth + 1
  end
  assert(depth <= MOST_IN_SLOT, phrase)
  _M.hash[entries], _M.kind[entries], _M.value[entries] = h, kind, value or 0
  _M.next[entries], _M.slot[at] = _M.slot[at], entries
  local index = band(h, word_hash.SPACE - 1)
  local place = rshift(index, 5)
  _M.is_cue[place] = bor(_M.is_cue[place], lshift(1, index))
end

for kind, name in ipairs(NAMES) do
  for _, phrase in ipairs(PHRASES[name]) do
    learn(phrase, kind)
  end
end
-- A word may be a cue and a unit ("paragraphs"): it has an entry for each.
for kind, units in pairs(UNITS) do
  for _, unit in ipairs(units) do
    learn(unit, kind)
  end
end
for word, value in pairs(NUMBERS) do
  learn(word, NUMBER, value)
end

return _M
