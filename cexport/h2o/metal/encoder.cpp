#include "../primitives.h"
#include "build.h"
#if H2O_METAL

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "../mlx_version.h"
#include "encoder.h"

namespace h2o::metal {

Constants& Constants::set(int index, Value value) {
  values_.emplace_back(index, value);
  return *this;
}

mx::metal::MTLFCList Constants::list() const {
  mx::metal::MTLFCList list;
  for (const auto& [index, value] : values_) {
    if (const auto* flag = std::get_if<bool>(&value)) {
      list.emplace_back(flag, MTL::DataType::DataTypeBool, index);
    } else {
      list.emplace_back(&std::get<int32_t>(value), MTL::DataType::DataTypeInt, index);
    }
  }
  return list;
}

std::string Constants::suffix() const {
  std::string text;
  for (const auto& [index, value] : values_) {
    const auto* flag = std::get_if<bool>(&value);
    text += "_" + std::to_string(index) + "is" +
            (flag ? (*flag ? "true" : "false") : std::to_string(std::get<int32_t>(value)));
  }
  return text;
}

bool Constants::is_set(int index) const {
  return std::find(values_.begin(), values_.end(), std::pair(index, Value(true))) !=
         values_.end();
}

namespace {

/// The names of pipelines; locked, because several threads evaluate.
struct Names {
  std::mutex mutex;
  std::set<std::string> names;
};

Names& scoring() {
  static auto& all = *new Names; // evaluations may outlive static objects
  return all;
}

} // namespace

std::set<std::string> scoring_pipelines() {
  std::lock_guard lock(scoring().mutex);
  return scoring().names;
}

Encoder::Encoder(mx::Stream stream)
    : stream_(stream),
      device_(mx::metal::device(stream.device)),
      encoder_(encoder_of(stream)) {
}

char Encoder::device_class() const {
  return device_.get_architecture().back();
}

mx::array Encoder::temporary(const mx::Shape& shape, mx::Dtype dtype) {
  mx::array a(shape, dtype, nullptr, {});
  a.set_data(allocated(a));
  keep(a);
  return a;
}

void Encoder::keep(const mx::array& a) {
  keep_until_done(stream_, a);
}

mx::array Encoder::contiguous(const mx::array& a) {
  if (a.flags().row_contiguous) {
    return a;
  }
  mx::array result = temporary(a.shape(), a.dtype());
  // The shape as [outer, heads, rows, width], with leading dimensions of 1.
  const int missing = 4 - int(a.ndim());
  auto size = [&](int axis) {
    return axis < missing ? 1 : a.shape(axis - missing);
  };
  auto stride = [&](int axis) -> int64_t {
    return axis < missing ? 0 : a.strides(axis - missing);
  };
  const int64_t row = size(3), head = row * size(2), outer = head * size(1);
  H2OCopy strides{size(1), stride(0), stride(1), stride(2), stride(3), outer, head, row};
  copy(a, result, strides, MTL::Size(size(3), size(2), size(0) * size(1)));
  return result;
}

void Encoder::copy_rows(const mx::array& from, int rows, mx::array& to) {
  if (rows == 0) {
    return;
  }
  H2OCopy strides{to.shape(1),     from.strides(0), from.strides(1), from.strides(2),
                  from.strides(3), to.strides(0),   to.strides(1),   to.strides(2)};
  copy(from, to, strides, MTL::Size(to.shape(3), rows, to.shape(0) * to.shape(1)));
}

void Encoder::copy(
    const mx::array& from, mx::array& to, const H2OCopy& strides, MTL::Size shape) {
  use({"h2o_copy", {"uint" + std::to_string(8 * from.itemsize()) + "_t"}});
  encoder_.set_input_array(from, 0);
  encoder_.set_output_array(to, 1);
  encoder_.set_bytes(strides, 2);
  encoder_.dispatch_threads(shape, MTL::Size(std::min<size_t>(shape.width, 256), 1, 1));
}

void Encoder::use(const KernelInstance& kernel, const Constants& constants) {
  const std::string name = kernel.name();
  name_ = name + constants.suffix();
  kernel_ = device_.get_kernel(name, library(device_, kernel), name_, constants.list());
  if (constants.is_set(constant::emits_logits)) {
    std::lock_guard lock(scoring().mutex);
    scoring().names.insert(name_);
  }
  encoder_.set_compute_pipeline_state(kernel_);
}

void Encoder::dispatch(MTL::Size grid, MTL::Size group) {
  const size_t threads = group.width * group.height * group.depth;
  const size_t allowed = kernel_->maxTotalThreadsPerThreadgroup();
  if (threads > allowed) {
    throw std::runtime_error(
        "[h2o] " + name_ + " can run with " + std::to_string(allowed) +
        " threads per threadgroup on this GPU; " + std::to_string(threads) +
        " are needed.");
  }
  encoder_.dispatch_threadgroups(grid, group);
}

int Encoder::max_threads() const {
  return int(kernel_->maxTotalThreadsPerThreadgroup() / 32 * 32);
}

int64_t head_stride(const mx::array& a) {
  return (a.shape(1) == 1 ? a.strides(0) : a.strides(1)) * int64_t(a.itemsize());
}

int64_t row_stride(const mx::array& a) {
  return a.strides(2) * int64_t(a.itemsize());
}

std::string type_name(mx::Dtype dtype) {
  if (dtype == mx::float32) {
    return "float";
  }
  if (dtype == mx::float16) {
    return "float16_t";
  }
  return dtype == mx::bfloat16 ? "bfloat16_t" : "";
}

} // namespace h2o::metal

#endif
