#include "build.h"
#if H2O_METAL

#include <algorithm>
#include <iterator>

#include "encoder.h"

namespace h2o::metal {

namespace {

bool heads_follow(const mx::array& a) {
  return a.strides(3) == 1 &&
         (a.shape(0) == 1 || a.shape(1) == 1 || a.strides(0) == a.strides(1) * a.shape(1));
}

/// The same attention with arrays in layouts that the kernels can read. Queries that are not
/// contiguous are then [B, L, Hq, D] in memory.
Attention laid_out(Encoder& encoder, Attention call) {
  auto& q = call.queries;
  const bool transposed = q.shape(0) == 1 && q.strides(3) == 1 &&
                          q.strides(1) == q.shape(3) &&
                          q.strides(2) == int64_t(q.shape(3)) * q.shape(1);
  if (!transposed) {
    q = encoder.contiguous(q);
  }
  auto lay_out = [&](std::vector<mx::array>& arrays) {
    bool fits = std::all_of(arrays.begin(), arrays.end(), heads_follow);
    // Scales and biases have the same strides.
    fits = fits && (arrays.size() < 3 || arrays[1].strides() == arrays[2].strides());
    if (!fits) {
      for (auto& a : arrays) {
        a = encoder.contiguous(a);
      }
    }
  };
  for (auto& part : call.parts) {
    lay_out(part.keys);
    lay_out(part.values);
  }
  if (call.mask) {
    auto& m = *call.mask;
    const bool fits = m.flags().row_contiguous || m.shape(0) == 1 || m.shape(1) == 1 ||
                      m.strides(0) == m.strides(1) * m.shape(1);
    m = fits ? m : encoder.contiguous(m);
  }
  if (call.sinks) {
    call.sinks = encoder.contiguous(*call.sinks);
  }
  return call;
}

/// Whether attention is computed in blocks because there are many rows, by MLX's rule.
bool takes_two_passes(const Encoder& encoder, const Attention& call) {
  const char device = encoder.device_class();
  return ((device == 'd' || device == 's') && call.rows() >= 1024) ||
         (call.group() > 1 && call.rows() >= 4096);
}

/// The number of blocks, by MLX's rule for this GPU.
int block_count(const Encoder& encoder, const Attention& call) {
  const int simdgroups = call.group() * call.tokens(), rows = call.rows();
  switch (encoder.device_class()) {
    case 's':
      if (rows <= 1024 || simdgroups <= 4) {
        return 64;
      }
      return rows <= 8192 ? 128 : rows <= 32768 ? 256 : rows <= 65536 ? 512 : 1024;
    case 'd':
      if (simdgroups <= 2 && rows > 8192) {
        return 256;
      }
      return simdgroups < 6 || rows < 16384 ? 128 : rows < 65536 ? 512 : 1024;
    default:
      return simdgroups >= 4 ? 64 : 32;
  }
}

/// `blocks`: the number of blocks if there are two passes, else 0.
Constants constants_of(const Attention& call, int blocks, bool emits) {
  const Part& pool = call.parts[0];
  const bool has_ring = call.parts.size() == 2;
  const bool boolean = call.mask && call.mask->dtype() == mx::bool_;
  Constants constants;
  constants.set(constant::query_transposed, !call.queries.flags().row_contiguous)
      .set(constant::is_causal, call.causal && call.tokens() > 1)
      .set(constant::bool_mask, boolean)
      .set(constant::float_mask, call.mask && !boolean)
      .set(constant::has_sinks, call.sinks.has_value())
      .set(constant::emits_logits, emits)
      .set(constant::blocks, int32_t(blocks))
      .set(constant::key_bits, int32_t(pool.key_bits))
      .set(constant::value_bits, int32_t(pool.value_bits))
      .set(constant::group_size, int32_t(call.group_size))
      .set(constant::ring_bits, int32_t(has_ring ? call.parts[1].key_bits : 0));
  return constants;
}

/// Strides of words or elements, and of scales, which only quantized vectors have.
H2OVectors vectors_of(const std::vector<mx::array>& arrays) {
  const auto &words = arrays.front(), &scales = arrays.back();
  return {head_stride(words), row_stride(words), head_stride(scales), row_stride(scales)};
}

/// Binds the arguments that h2o_attend and h2o_attend_block share.
void bind(Encoder& encoder, const Attention& call, mx::array& out, mx::array* logits) {
  // 0 along dimensions that are broadcast.
  auto mask_stride = [&](int axis) {
    return call.mask && call.mask->shape(axis) > 1 ? int32_t(call.mask->strides(axis)) : 0;
  };
  const bool masks_heads = call.mask && call.mask->shape(1) > 1;
  const Part& pool = call.parts[0];
  H2OAttention parameters{
      call.group(),
      call.heads(),
      pool.rows,
      call.parts.size() == 2 ? call.parts[1].rows : 0,
      call.scale,
      mask_stride(masks_heads ? 1 : 0),
      mask_stride(2),
      mask_stride(3),
      vectors_of(pool.keys),
      vectors_of(pool.values),
      {},
      {}};
  if (call.parts.size() == 2) {
    parameters.ring_keys = vectors_of(call.parts[1].keys);
    parameters.ring_values = vectors_of(call.parts[1].values);
  }
  encoder->set_input_array(call.queries, 0);
  encoder->set_bytes(parameters, 2);
  int slot = 3;
  for (const Part& part : call.parts) {
    for (size_t i = 0; i < 3; ++i, ++slot) {
      if (i < part.keys.size()) {
        encoder->set_input_array(part.keys[i], slot, part.key_offsets[i]);
      }
    }
    for (size_t i = 0; i < 3; ++i, ++slot) {
      if (i < part.values.size()) {
        encoder->set_input_array(part.values[i], slot, part.value_offsets[i]);
      }
    }
  }
  if (call.mask) {
    encoder->set_input_array(*call.mask, call.mask->dtype() == mx::bool_ ? 15 : 16);
  }
  if (call.sinks) {
    encoder->set_input_array(*call.sinks, 17);
  }
  encoder->set_output_array(out, 1);
  if (logits != nullptr) {
    encoder->set_output_array(*logits, 18);
  }
}

KernelInstance instance_of(const std::string& kernel, const Attention& call) {
  return {kernel, {type_name(call.queries.dtype()), std::to_string(call.dim)}};
}

void one_pass(Encoder& encoder, const Attention& call, mx::array& out, mx::array* logits) {
  encoder.use(instance_of("h2o_attend", call), constants_of(call, 0, logits != nullptr));
  bind(encoder, call, out, logits);
  encoder.dispatch(
      MTL::Size(call.batch() * call.heads(), call.tokens(), 1), MTL::Size(1024, 1, 1));
}

void two_passes(
    Encoder& encoder, const Attention& call, mx::array& out, mx::array* logits) {
  const int blocks = block_count(encoder, call);
  const auto constants = constants_of(call, blocks, logits != nullptr);
  mx::Shape shape{call.batch(), call.heads(), call.tokens(), blocks};
  auto totals = encoder.temporary(shape, mx::float32);
  auto largest = encoder.temporary(shape, mx::float32);
  shape.push_back(call.dim);
  auto parts = encoder.temporary(shape, call.queries.dtype());

  encoder.use(instance_of("h2o_attend_block", call), constants);
  bind(encoder, call, parts, logits);
  encoder->set_output_array(totals, 19);
  encoder->set_output_array(largest, 20);
  encoder.dispatch(
      MTL::Size(call.kv_heads, call.batch(), blocks),
      MTL::Size(32, call.group(), call.tokens()));

  encoder.use(instance_of("h2o_add_blocks", call), constants);
  encoder->set_input_array(parts, 0);
  encoder->set_input_array(totals, 1);
  encoder->set_input_array(largest, 2);
  encoder->set_output_array(out, 3);
  encoder.dispatch(
      MTL::Size(call.batch() * call.heads(), call.tokens(), 1), MTL::Size(1024, 1, 1));
}

} // namespace

bool supports(const CallShape& shape) {
  constexpr int dims[] = {H2O_HEAD_DIMS};
  return !type_name(shape.dtype).empty() && shape.rows_dtype == shape.dtype &&
         shape.value_dim == shape.key_dim &&
         std::find(std::begin(dims), std::end(dims), shape.key_dim) != std::end(dims) &&
         shape.tokens <= draft_tokens && shape.tokens * shape.group <= 32;
}

void encode_attention(
    Encoder& encoder, const Attention& attention, mx::array& out, mx::array* scores) {
  const Attention call = laid_out(encoder, attention);
  if (takes_two_passes(encoder, call)) {
    two_passes(encoder, call, out, scores);
  } else {
    one_pass(encoder, call, out, scores);
  }
}

void attend(
    mx::Stream stream, const Attention& attention, mx::array& out, mx::array* scores) {
  Encoder encoder(stream);
  encode_attention(encoder, attention, out, scores);
}

} // namespace h2o::metal

#endif
