--- The members of an OpenAI-style request body that are read, for each kind of request, as nodes (`json/node.lua`).
local nodes = require "tokenweir.core.json.node"
local prompt = require "tokenweir.core.body.prompt"

local ipairs = ipairs
local node, members_of, NOTHING = nodes.new, nodes.members, nodes.NOTHING

local _M = {}

--- Members by tag. Tags up to `prompt.SLOTS` are those that hold prompt text, counted in the slot of the same number.
local NAMES = {
  "messages", "prompt", "input", "instructions", "tools", "functions", "documents", "suffix",
  "model", "stream", "n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens",
  "n_predict",
  -- From here on requests of every kind have them. `sampling.lua` reads these.
  "temperature", "top_p", "stop", "min_tokens", "ignore_eos", "logprobs", "tool_choice", "response_format", "text",
  "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "reasoning_effort",
  "reasoning", "thinking", "enable_thinking", "thinking_budget", "chat_template_kwargs",
  -- What tells sessions.
  "prompt_cache_key", "user", "previous_response_id",
}
_M.NAMES = NAMES
--- The last tag of a member that must be read as the engine reads it: where it is given twice, both must agree.
_M.LAST_STRICT = 16

--- Tags by name.
local TAGS = {}
for tag, name in ipairs(NAMES) do
  TAGS[name] = tag
end
_M.TAGS = TAGS

-- `like` is the node of what the member's value may hold.
local function member(name, like)
  like = like or NOTHING
  return node {
    tag = TAGS[name], code = like.code, string = like.string,
    children = like.children, other = like.other, each = like.each,
  }
end

local function shape(members)
  local children = {}
  for tag = _M.LAST_STRICT + 1, #NAMES do
    children[NAMES[tag]] = member(NAMES[tag])
  end
  for _, one in ipairs(members) do
    children[NAMES[one.tag]] = one
  end
  return node { children = members_of(children), other = NOTHING }
end

--- The root node by kind of request.
_M.BY_KIND = {
  chat = shape {
    member "model", member "stream", member "n", member "max_tokens", member "max_completion_tokens",
    member "n_predict",
    member("messages", prompt.CONVERSATION), member("tools", prompt.TOOLS), member("functions", prompt.TOOLS),
    member("documents", prompt.TEXT),
  },
  completions = shape {
    member "model", member "stream", member "n", member "best_of", member "max_tokens",
    member "n_predict",
    member("prompt", prompt.PROMPTS), member("suffix", prompt.TEXT),
  },
  responses = shape {
    member "model", member "stream", member "max_output_tokens",
    member("input", prompt.CONVERSATION), member("instructions", prompt.INSTRUCTIONS),
    member("tools", prompt.TOOLS),
  },
  embeddings = shape {
    member "model", member("input", prompt.PROMPTS), member("messages", prompt.CONVERSATION),
  },
  -- Whatever else takes JSON below /v1/: only routed.
  other = shape { member "model", member "stream" },
}

return _M
