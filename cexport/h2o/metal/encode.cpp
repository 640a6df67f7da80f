#include "encode.h"

#include <stdexcept>

#include "../primitives.h"
#include "build.h"
#include "mlx/ops.h"

namespace h2o::metal {

void push_masks(
    std::vector<mx::array>& inputs,
    const mx::array& queries,
    int rows,
    const std::optional<mx::array>& mask,
    const std::optional<mx::array>& sinks,
    mx::Stream stream) {
  const bool for_kernels = on_gpu(stream);
  if (mask && for_kernels) {
    mx::Shape shape{queries.shape(0), queries.shape(1), queries.shape(2), rows};
    inputs.push_back(mx::broadcast_to(*mask, shape, stream));
    auto typed =
        mask->dtype() == mx::bool_ ? *mask : mx::astype(*mask, queries.dtype(), stream);
    inputs.push_back(mx::broadcast_to(typed, shape, stream));
  } else if (mask) {
    inputs.push_back(*mask);
  }
  if (sinks) {
    inputs.push_back(for_kernels ? mx::astype(*sinks, queries.dtype(), stream) : *sinks);
  }
}

Part part_of(const mx::array& rows, const RowLayout& layout, int count) {
  auto offsets = [](const VectorLayout& vector) {
    std::vector<int64_t> all{vector.start, vector.scales(), vector.biases()};
    all.resize(vector.bits == 16 ? 1 : 3);
    return all;
  };
  Part part{count, layout.key.bits,     layout.value.bits,    {},
            {},    offsets(layout.key), offsets(layout.value)};
  part.keys.assign(part.key_offsets.size(), rows);
  part.values.assign(part.value_offsets.size(), rows);
  return part;
}

#if !H2O_METAL

namespace {

[[noreturn]] void no_kernels() {
  throw std::logic_error("[h2o] This build has no Metal kernels.");
}

} // namespace

bool supports(const CallShape&) {
  return false;
}

void compile_kernel(const std::string&, const std::vector<std::string>&) {
  no_kernels();
}

std::set<std::string> scoring_pipelines() {
  return {};
}

void attend(mx::Stream, const Attention&, mx::array&, mx::array*) {
  no_kernels();
}

void update_ledger(
    mx::Stream,
    const LedgerUpdate&,
    const std::vector<mx::array>&,
    std::vector<mx::array>&) {
  no_kernels();
}

void copy_rows(mx::Stream, const mx::array&, int, mx::array&) {
  no_kernels();
}

void write(
    mx::Stream,
    const CacheStep&,
    const Layouts&,
    const mx::array&,
    const mx::array&,
    const mx::array&,
    std::vector<mx::array>&) {
  no_kernels();
}

#endif

} // namespace h2o::metal
