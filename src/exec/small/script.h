// A plan as small calls run it: one parcel to each peer that the plan sends to, everything for it in
// one message, and what this rank computes itself.
#pragma once

#include <cstdint>
#include <vector>

#include "coll/plan.h"
#include "exec/communicator.h"

namespace beeline::exec {

// For all calls of an operation (and root).
struct Script {
  enum class Kind : std::uint8_t { copy, send, await, reduce };
  struct Act {
    Kind kind = Kind::copy;
    Rank peer{-1};
    std::vector<std::uint32_t> steps;  // of the plan; a parcel carries several, or none
  };
  coll::Plan plan;
  std::vector<Act> acts;
};

// `carrier` is the plan of a barrier by the same algorithm: its messages are the parcels, so that whoever is
// done has heard of every rank. Every message of `plan` travels in one of them. Both are verified plans of a
// gathering algorithm (coll/gathering.h), which meet each peer once.
Script make_script(const coll::Plan& carrier, coll::Plan plan);

// The same for one call: with addresses instead of chunks. Nothing in it that does nothing.
struct Program {
  // 0: the input, 1: the output, 2: partial results, 3 + r: the payload that came from rank r.
  enum Base : std::uint16_t { input, output, partial, parcels };
  struct Place {
    std::uint16_t base = input;
    std::uint32_t offset = 0;
  };
  struct Part {
    Place here;
    std::uint32_t bytes = 0;
    std::uint32_t in_parcel = 0;  // offset
  };
  struct Instruction {
    Script::Kind kind = Script::Kind::copy;
    bool completes = false;
    Rank peer{-1};
    std::uint32_t bytes = 0;                  // of the payload; copy: of what is copied
    std::uint32_t first_part = 0, parts = 0;  // send: gathered from; await: copied to
    Place left, right, out;                   // copy: left to out
    std::uint32_t elements = 0;
  };
  std::vector<Instruction> instructions;
  std::vector<Part> parts;
};

Program make_program(const Script& script, const Call& call);

}  // namespace beeline::exec
