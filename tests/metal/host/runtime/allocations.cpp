#include "allocations.h"

#include <map>
#include <mutex>

namespace h2o::host {

namespace {
std::mutex mutex;
std::map<const mx::array::Data*, std::shared_ptr<Allocation>> known;
uint64_t last_id = 0;
} // namespace

std::shared_ptr<Allocation> allocation_of(const mx::array& array, uint64_t made_in) {
  const Data& data = array.data_shared_ptr();
  std::lock_guard lock(mutex);
  auto& found = known[data.get()];
  if (found == nullptr || found->data.lock() != data) {
    std::erase_if(known, [](const auto& entry) {
      return entry.second != nullptr && entry.second->data.expired();
    });
    auto made = std::make_shared<Allocation>(Allocation{++last_id, data, made_in});
    known[data.get()] = made;
    return made;
  }
  return found;
}

} // namespace h2o::host
