#pragma once

// What mlx/backend/metal/device.h and its users need of metal-cpp. The encoder keeps what
// is bound; runtime/ runs it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace h2o::host {
struct Pipeline;
struct Recorder;
} // namespace h2o::host

namespace NS {
using UInteger = std::uintptr_t;
using Integer = std::intptr_t;
class String;
class Error;
class AutoreleasePool {};

/// An object that is shared; it has no counter of its own here.
template <class T>
class SharedPtr : public std::shared_ptr<T> {
 public:
  using std::shared_ptr<T>::shared_ptr;
};
} // namespace NS

namespace MTL {

enum DataType : NS::UInteger {
  DataTypeNone = 0,
  DataTypeFloat = 3,
  DataTypeHalf = 16,
  DataTypeInt = 29,
  DataTypeUInt = 33,
  DataTypeShort = 37,
  DataTypeUShort = 41,
  DataTypeChar = 45,
  DataTypeUChar = 49,
  DataTypeBool = 53,
};

struct Size {
  NS::UInteger width = 0;
  NS::UInteger height = 0;
  NS::UInteger depth = 0;

  Size() = default;
  Size(NS::UInteger width, NS::UInteger height, NS::UInteger depth)
      : width(width), height(height), depth(depth) {
  }
  static Size Make(NS::UInteger width, NS::UInteger height, NS::UInteger depth) {
    return {width, height, depth};
  }
};

struct Object {
  void retain() {
  }
  void release() {
  }
};

struct Allocation : Object {};
struct Resource : Allocation {};
struct Buffer : Resource {};
struct Device : Object {};
struct Fence : Object {};
struct CommandBuffer : Object {};
struct Function : Object {};
struct LinkedFunctions : Object {};
struct ResidencySet : Object {};

struct Library : Object {
  std::string name;
  std::vector<int> constants; // that its text declares
};

struct CommandQueue : Object {};

class ComputePipelineState : public Object {
 public:
  explicit ComputePipelineState(std::shared_ptr<const h2o::host::Pipeline> pipeline)
      : pipeline_(std::move(pipeline)) {
  }
  NS::UInteger maxTotalThreadsPerThreadgroup() const;
  NS::UInteger threadExecutionWidth() const {
    return 32;
  }
  const std::shared_ptr<const h2o::host::Pipeline>& pipeline() const {
    return pipeline_;
  }

 private:
  std::shared_ptr<const h2o::host::Pipeline> pipeline_;
};

class ComputeCommandEncoder : public Object {
 public:
  explicit ComputeCommandEncoder(int stream);
  ~ComputeCommandEncoder();

  void setComputePipelineState(const ComputePipelineState* pipeline);
  void setBytes(const void* bytes, NS::UInteger length, NS::UInteger index);
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index);

  h2o::host::Recorder& recorder() {
    return *recorder_;
  }

 private:
  std::unique_ptr<h2o::host::Recorder> recorder_;
};

} // namespace MTL
