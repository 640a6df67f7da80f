#pragma once

// What mlx/backend/metal/device.h and its users need of metal-cpp. The encoder keeps what
// is bound; runtime/ runs it.

#include "runtime/dispatch.h"

namespace NS {
using UInteger = std::uintptr_t;
class AutoreleasePool {};

/// An object that is shared; it has no counter of its own here.
template <class T>
class SharedPtr : public std::shared_ptr<T> {
 public:
  using std::shared_ptr<T>::shared_ptr;
};
} // namespace NS

namespace MTL {

enum DataType { DataTypeInt = 29, DataTypeBool = 53 };

struct Size {
  NS::UInteger width, height, depth;

  Size(NS::UInteger width, NS::UInteger height, NS::UInteger depth)
      : width(width), height(height), depth(depth) {
  }
};

struct Allocation {};
struct Resource : Allocation {};
struct Buffer : Resource {};
struct Device {};
struct Fence {};
struct CommandBuffer {};
struct CommandQueue {};
struct Function {};
struct LinkedFunctions {};
struct ResidencySet {};

struct Library {
  std::vector<int> constants; // that its text declares
};

class ComputePipelineState {
 public:
  explicit ComputePipelineState(h2o::host::Pipeline pipeline)
      : pipeline_(std::make_shared<const h2o::host::Pipeline>(std::move(pipeline))) {
  }
  NS::UInteger maxTotalThreadsPerThreadgroup() const {
    return static_cast<NS::UInteger>(pipeline_->kernel->signature.max_threads);
  }
  const std::shared_ptr<const h2o::host::Pipeline>& pipeline() const {
    return pipeline_;
  }

 private:
  std::shared_ptr<const h2o::host::Pipeline> pipeline_;
};

/// What it is told until it dispatches. Runs go to the CPU stream of the same index, so
/// that whoever records them sees no results.
class ComputeCommandEncoder {
 public:
  explicit ComputeCommandEncoder(int stream) : stream_(stream) {
  }

  void setComputePipelineState(const ComputePipelineState* pipeline);
  void setBytes(const void* bytes, NS::UInteger length, NS::UInteger index);
  void bind(NS::UInteger index, h2o::host::Binding binding);
  void mark_output(NS::UInteger index);
  void barrier();
  void end();
  void dispatch(Size threads, Size group);

  /// Declared only: kernels declare their threadgroup memory themselves.
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index);

 private:
  int stream_;
  std::shared_ptr<const h2o::host::Pipeline> pipeline_;
  std::map<int, h2o::host::Binding> bindings_;
  bool barrier_pending_ = false;
};

} // namespace MTL
