--- What the workers of a gateway share of one model's queue, and what each shows the others of its own waiters.
--
-- A `tw_line` has one writer, its worker. A `tw_queue` is written by all: each figure by itself, without a lock; a race
-- costs a request's worth of precision and nothing else.
local contract = require "tokenweir.contract"
local ffi = require "ffi"

local NUMBERS = contract.numbers

--- Waiters that a worker shows: the one whose turn it is, and those that may pass it.
local WINDOW = NUMBERS.queue_window + 1
local CLASSES = 3
local MARKS = 8
local FLOW_SETS = 1024
local STEPS = 10

local DEFINITION = [[
typedef struct { uint64_t key; double tag; } tw_flow;
typedef struct { tw_flow way[4]; } tw_flow_set;
typedef struct {
  double clock;                  /* V: the tag that was served last */
  double issued;                 /* the largest tag that was given */
  double due[CLASSES];           /* work served in all at which a class is owed a turn */
  double served;                 /* work of workers that are gone */
  double work, passed, sampled, sampled_at, measured;  /* what went in how long, see `wait.lua` */
  double gone, gone_sampled, forgot_at;   /* how many went; until when what is older was forgotten, ms */
  double factor[STEPS];          /* the middle of what waits were, over what was reckoned, by that; 0: not known yet */
  double most[STEPS];            /* what nearly all of them did not exceed */
  double learned[STEPS];
  double rise, rise_passed, clock_sampled;         /* how far V rose in how long */
  double offset;                 /* what is added to tags where other gateways are told of them */
  double peer_front, peer_clock, peer_at;   /* what they told, and when; 0: nobody waits there, see `gateways.lua` */
  double peer_rise, peer_passed; /* how far the highest V of theirs rose in how long */
  double yields, yield_at, yield_tide;
  tw_flow_set flows[FLOW_SETS];
} tw_queue;
typedef struct {
  double shown;                  /* of its waiters in order, so many of the first: */
  double first[WINDOW];          /*   their places in the order */
  double blocked[WINDOW];        /*   the tide at which no backend had room for them */
  double since, hold;            /* when that began for the very first, ms; place + 1 of the backend held for it */
  double looked;                 /* when its worker looked last, or one came, ms */
  double lowest;                 /* the lowest tag here */
  double first_of[CLASSES];      /* the place in the order of the first of each class here */
  double served;                 /* work that went from here to a backend */
  double count[CLASSES], bytes[CLASSES];
  double oldest[CLASSES];        /* when the one that waits longest came, ms; 0: nobody waits */
  char label[CLASSES][72];       /* what that one is called, see `init.lua` */
  double marks[CLASSES];         /* so many marks: the place in the order of one, and what stands up to there */
  double mark_key[CLASSES][MARKS], mark_count[CLASSES][MARKS], mark_work[CLASSES][MARKS];
} tw_line;
]]

ffi.cdef((DEFINITION:gsub("%u%u[%u_]+", {
  CLASSES = CLASSES, WINDOW = WINDOW, MARKS = MARKS, FLOW_SETS = FLOW_SETS,
  STEPS = STEPS,
})))

local _M = {
  WINDOW = WINDOW, MARKS = MARKS, FLOW_SETS = FLOW_SETS, STEPS = STEPS, LINE_SIZE = ffi.sizeof("tw_line"),
  --- Priority classes, as the arrays number them.
  CLASS = { high = 0, normal = 1, low = 2 },
  LAST_CLASS = CLASSES - 1,
}

--- The shared part of a queue in memory of its own.
function _M.queue()
  return ffi.new("tw_queue")
end

--- One worker's part in memory of its own.
function _M.line()
  return ffi.new("tw_line")
end

return _M
