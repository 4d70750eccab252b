#include "exec/fingerprint.h"

namespace beeline::exec {
namespace {

using coll::Operation;

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

// Apart, so that describing a sum, of which there are many that are small, takes no stack.
[[gnu::noinline]] Fingerprint of_a_move(const Call& call, std::uint64_t sequence,
                                        std::uint32_t communicator) {
  Fingerprint fingerprint{.sequence = sequence, .operation = call.operation, .communicator = communicator};
  if (call.operation == Operation::barrier) return fingerprint;
  fingerprint.count = call.count;
  fingerprint.dtype = call.dtype;
  if (call.operation == Operation::broadcast) fingerprint.root = call.root.value;
  return fingerprint;
}

}  // namespace

Fingerprint fingerprint_of(const Call& call, std::uint64_t sequence, std::uint32_t communicator) {
  if (!reduces(call.operation)) return of_a_move(call, sequence, communicator);
  return {.sequence = sequence,
          .count = call.count,
          .operation = call.operation,
          .dtype = call.dtype,
          .redop = call.redop,
          .communicator = communicator};
}

// FNV-1a (Fowler, Noll, Vo).
std::uint32_t communicator_id(const std::string& name, int size) {
  std::uint32_t hash = 2166136261u;
  const auto add = [&](std::uint8_t byte) { hash = (hash ^ byte) * 16777619u; };
  for (const char c : name) add(static_cast<std::uint8_t>(c));
  for (int shift = 0; shift < 32; shift += 8) add(static_cast<std::uint8_t>(size >> shift));
  return hash;
}

std::string describe(const Fingerprint& call) {
  if (call.operation == Operation::barrier) return "barrier()";
  std::string text = fmt::format("{}(", coll::name(call.operation));
  if (reduces(call.operation)) text += fmt::format("{}, ", name(call.redop));
  text += fmt::format("{}, {} element{}", name(call.dtype), call.count, call.count == 1 ? "" : "s");
  if (call.operation == Operation::broadcast) text += fmt::format(", root {}", call.root);
  return text + ")";
}

Error mismatch(Rank one, const Fingerprint& one_called, Rank other, const Fingerprint& other_called) {
  if (other < one) return mismatch(other, other_called, one, one_called);
  const std::string second_call = one_called.sequence == other_called.sequence
                                      ? std::string()
                                      : fmt::format(" as its call {}", other_called.sequence);
  const std::string_view cause = one_called.communicator == other_called.communicator
                                     ? "all ranks must make the same calls in the same order"
                                     : "their groups differ in name or size";
  return {Errc::mismatch, fmt::format("rank {} called {} as its call {}, but rank {} called {}{}: {}",
                                      one.value, describe(one_called), one_called.sequence, other.value,
                                      describe(other_called), second_call, cause)};
}

}  // namespace beeline::exec
