#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <variant>
#include <vector>

#include "../functions.h"
#include "../row_layout.h"
#include "encode.h"
#include "h2o_parameters.h"
#include "library.h"
#include "mlx/backend/metal/device.h"

namespace h2o::metal {

static_assert(over_victim == H2O_OVER_VICTIM);

/// Indices of function constants, as the kernels declare them.
namespace constant {
enum {
  query_transposed,
  is_causal,
  bool_mask,
  float_mask,
  has_sinks,
  emits_logits,
  blocks,
  key_bits,
  value_bits,
  group_size,
  ring_bits,
  score,
  mask_kind,
  observes,
  has_pins
};
}

/// Values of function constants. The pipeline's name contains them, so that different
/// values have different pipelines.
class Constants {
 public:
  using Value = std::variant<bool, int32_t>;

  Constants& set(int index, Value value);

  mx::metal::MTLFCList list() const;
  std::string suffix() const;
  bool is_set(int index) const;

 private:
  // A list, because Metal gets the values' addresses.
  std::list<std::pair<int, Value>> values_;
};

/// Encodes the dispatches of one evaluation of a primitive.
class Encoder {
 public:
  explicit Encoder(mx::Stream stream);

  mx::metal::CommandEncoder* operator->() {
    return &encoder_;
  }

  /// The last letter of the GPU's architecture: p phone, g base and pro, s max, d ultra.
  char device_class() const;

  /// Makes a temporary array, which is kept until the GPU is done with it.
  mx::array temporary(const mx::Shape& shape, mx::Dtype dtype);

  /// Keeps a temporary array until the GPU is done with it.
  void keep(const mx::array& a);

  /// Returns `a` if it is contiguous by rows, else a temporary copy that is.
  mx::array contiguous(const mx::array& a);

  /// Copies the first `rows` rows of every head [B, H, *, width] of `from` to `to`.
  void copy_rows(const mx::array& from, int rows, mx::array& to);

  /// Selects a specialized kernel for the next dispatch.
  void use(const KernelInstance& kernel, const Constants& constants = {});

  /// Dispatches `grid` threadgroups of `group` threads; throws std::runtime_error if the
  /// kernel does not allow that many.
  void dispatch(MTL::Size grid, MTL::Size group);

  /// The most threads, a multiple of 32, that a threadgroup of the kernel can have.
  int max_threads() const;

 private:
  mx::Stream stream_;
  mx::metal::Device& device_;
  mx::metal::CommandEncoder& encoder_;
  MTL::ComputePipelineState* kernel_ = nullptr;
  std::string name_;

  void copy(const mx::array& from, mx::array& to, const H2OCopy& strides, MTL::Size shape);
};

/// The position of a vector in a row, in the form that our kernels take.
H2OVectorLayout layout_parameters(const VectorLayout& layout);

/// Bytes from one head to the next of an array [B, Hkv, N, *] whose heads follow each other,
/// and from one row to the next.
int64_t head_stride(const mx::array& a);
int64_t row_stride(const mx::array& a);

/// The name of a dtype in our kernels' instances; empty if they do not support it.
std::string type_name(mx::Dtype dtype);

/// Like `attend`, on an existing encoder.
void encode_attention(
    Encoder& encoder, const Attention& attention, mx::array& out, mx::array* scores);

} // namespace h2o::metal
