#include "hazards.h"

#include <bit>
#include <vector>

namespace h2o::host {

namespace {

struct Touched {
  int stream;
  uint64_t epoch;
  std::string kernel;
  std::shared_ptr<Allocation> allocation;
  std::vector<uint64_t> read, written;
};

std::vector<Touched> touched;

int64_t first_common_byte(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  for (size_t word = 0; word < std::min(a.size(), b.size()); ++word) {
    if (uint64_t bits = a[word] & b[word]; bits != 0) {
      return static_cast<int64_t>(word) * 64 + std::countr_zero(bits);
    }
  }
  return -1;
}

} // namespace

std::optional<std::string> enter_and_compare(
    const Dispatch& dispatch,
    const std::shared_ptr<Allocation>& allocation,
    const std::string& buffer_name,
    int64_t binding_offset,
    const Slot& slot) {
  std::erase_if(touched, [&](const Touched& earlier) {
    return (earlier.stream == dispatch.stream && earlier.epoch != dispatch.epoch) ||
           earlier.allocation->data.expired();
  });
  std::optional<std::string> race;
  const std::string name = dispatch.pipeline->kernel->name;
  for (const Touched& earlier : touched) {
    if (earlier.allocation->id != allocation->id || earlier.stream != dispatch.stream) {
      continue;
    }
    struct {
      int64_t byte;
      const char *now, *before;
    } pairs[] = {
        {first_common_byte(slot.written, earlier.written), "writes", "writes"},
        {first_common_byte(slot.written, earlier.read), "writes", "reads"},
        {first_common_byte(slot.read, earlier.written), "reads", "writes"},
    };
    for (const auto& pair : pairs) {
      if (pair.byte >= 0 && !race) {
        race = name + " " + pair.now + " byte " +
               std::to_string(pair.byte - binding_offset) + " of " + buffer_name +
               ", which " + earlier.kernel + " " + pair.before +
               " with no barrier in between.";
      }
    }
  }
  touched.push_back(
      {dispatch.stream, dispatch.epoch, name, allocation, slot.read, slot.written});
  return race;
}

int64_t enter_and_find_unwritten(
    const Dispatch& dispatch, Allocation& allocation, const Slot& slot) {
  if (allocation.made_in == 0 || allocation.made_in != dispatch.evaluation) {
    return -1;
  }
  allocation.written.resize(slot.written.size());
  int64_t found = -1;
  for (size_t word = 0; word < slot.written.size(); ++word) {
    allocation.written[word] |= slot.written[word];
    const uint64_t missing = slot.read[word] & ~allocation.written[word];
    if (missing != 0 && found < 0) {
      found = static_cast<int64_t>(word) * 64 + std::countr_zero(missing);
    }
  }
  return found;
}

} // namespace h2o::host
