#pragma once

#include <cstdint>
#include <list>
#include <string>
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
  has_pins,
  has_held
};
}

/// Values of function constants; they make up the pipeline's name too, so that no two
/// sets share one.
class Constants {
 public:
  Constants& set(int index, bool value);
  Constants& set(int index, int32_t value);

  mx::metal::MTLFCList list() const;
  std::string suffix() const;
  bool is_set(int index) const;

 private:
  struct Value {
    int index;
    bool is_bool;
    bool flag;
    int32_t number;
  };
  std::list<Value> values_; // a list: Metal is given their addresses
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

  /// An array of this evaluation's own, kept until the GPU is done with it.
  mx::array temporary(const mx::Shape& shape, mx::Dtype dtype);

  /// Keeps an array that this evaluation made.
  void keep(const mx::array& a);

  /// `a` if its elements lie row by row, else a temporary copy in which they do.
  mx::array contiguous(const mx::array& a);

  /// Copies the first `rows` rows of every head [B, H, *, width] of `from` to `to`.
  void copy_rows(const mx::array& from, int rows, mx::array& to);

  /// Makes a kernel, specialized, that of the next dispatch.
  void use(const KernelInstance& kernel, const Constants& constants = {});

  /// Dispatches `grid` threadgroups of `group` threads; throws std::runtime_error where the
  /// kernel cannot have so many.
  void dispatch(MTL::Size grid, MTL::Size group);

  /// The most threads, a multiple of 32, that a threadgroup of the kernel can have.
  int max_threads() const;

 private:
  mx::Stream stream_;
  mx::metal::Device& device_;
  mx::metal::CommandEncoder& encoder_;
  MTL::ComputePipelineState* kernel_ = nullptr;
  std::string name_;
  bool writes_scores_ = false;

  void copy(const mx::array& from, mx::array& to, const H2OCopy& strides, MTL::Size shape);
};

/// Where a vector lies in a row, as our kernels take it.
H2OVectorLayout layout_parameters(const VectorLayout& layout);

/// The dtype as our kernels' instances have it; empty where there are none for it.
std::string type_name(mx::Dtype dtype);

/// As `attend`, on an encoder.
void encode_attention(
    Encoder& encoder, const Attention& attention, mx::array& out, mx::array* scores);

} // namespace h2o::metal
