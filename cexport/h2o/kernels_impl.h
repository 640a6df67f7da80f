// The kernels of kernels.h for one instruction set. kernels.cpp includes this
// file once for each, with these macros set:
//   H2O_NAMESPACE   where the functions go
//   H2O_TARGET      function attribute that selects the instruction set
//   H2O_LANES       floats in a vector register
//   H2O_ROW_BLOCK   rows whose dot products are accumulated at once
//   H2O_DIM_BLOCK   vectors of the output that are accumulated at once
//   H2O_REGISTER    the assembler's constraint for a vector register
//   H2O_WIDEN_HALF  what converts one Float16 to float
//   H2O_STORE_HALF  what stores a Vector as H2O_LANES float16 at a pointer
//   H2O_WIDEN_BYTES what converts H2O_LANES bytes to a Vector
//   H2O_LOAD_HALF   what converts H2O_LANES float16 at a pointer to a Vector
// Blocks are sized so that all accumulators stay in registers.

namespace h2o::cpu::H2O_NAMESPACE {

#define H2O_INLINE H2O_TARGET inline __attribute__((always_inline))

constexpr int lanes = H2O_LANES;
constexpr int head_block = 4;

typedef float Vector __attribute__((vector_size(4 * H2O_LANES)));
typedef int32_t IntVector __attribute__((vector_size(4 * H2O_LANES)));
typedef uint32_t WordVector __attribute__((vector_size(4 * H2O_LANES)));
typedef uint16_t HalfWords __attribute__((vector_size(2 * H2O_LANES)));

H2O_INLINE Vector splat(float x) {
  return x - Vector{};
}

H2O_INLINE Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

H2O_INLINE void store(float* p, Vector v) {
  std::memcpy(p, &v, sizeof(v));
}

H2O_INLINE IntVector load(const int32_t* p) {
  IntVector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

/// float16 to float32 by moving the exponent; infinities and NaN stay what they are.
H2O_INLINE Vector widen_half(const Float16* p) {
  HalfWords words;
  std::memcpy(&words, p, sizeof(words));
  WordVector wide = __builtin_convertvector(words, WordVector);
  WordVector magnitude = (wide & 0x7fffu) << 13;
  Vector scaled = __builtin_bit_cast(Vector, magnitude) * 0x1p112f;
  WordVector special =
      (magnitude >= (0x7c00u << 13)) ? WordVector{} + 0x7f800000u : WordVector{};
  WordVector bits =
      __builtin_bit_cast(WordVector, scaled) | special | ((wide & 0x8000u) << 16);
  return __builtin_bit_cast(Vector, bits);
}

H2O_INLINE Vector load(const Float16* p) {
  return H2O_LOAD_HALF(p);
}

H2O_INLINE float scalar_to_float(float x) {
  return x;
}

H2O_INLINE float scalar_to_float(BFloat16 x) {
  return to_float(x);
}

H2O_INLINE float scalar_to_float(Float16 x) {
  return H2O_WIDEN_HALF(x);
}

H2O_INLINE Vector load(const BFloat16* p) {
  HalfWords words;
  std::memcpy(&words, p, sizeof(words));
  WordVector wide = __builtin_convertvector(words, WordVector) << 16;
  return __builtin_bit_cast(Vector, wide);
}

/// Rows ahead of the one at work that are fetched: enough to hide a miss of the caches.
constexpr int rows_ahead = 16;

H2O_INLINE void prefetch(const void* from, int64_t bytes) {
  constexpr int64_t line = 64;
  for (int64_t at = 0; at < bytes; at += line) {
    __builtin_prefetch(static_cast<const char*>(from) + at);
  }
}

/// Adds the two halves of every block of `Block` lanes, of a's blocks and then b's: from
/// lanes [A B] and [C D] to [A' B' C' D'], each half as long.
template <int Block, int... Lane>
H2O_INLINE Vector fold(Vector a, Vector b, std::integer_sequence<int, Lane...>) {
  constexpr int half = Block / 2;
  return __builtin_shufflevector(a, b, (Lane / half * Block + Lane % half)...) +
         __builtin_shufflevector(a, b, (Lane / half * Block + Lane % half + half)...);
}

template <int Block>
H2O_INLINE Vector fold(Vector a, Vector b) {
  return fold<Block>(a, b, std::make_integer_sequence<int, lanes>{});
}

/// Lane i of the result is the sum of v[i]'s lanes, for `Block` = lanes vectors.
template <int Block = lanes>
H2O_INLINE Vector sums_of(const Vector* v) {
  Vector folded[Block / 2];
  for (int i = 0; i < Block / 2; ++i) {
    folded[i] = fold<Block>(v[2 * i], v[2 * i + 1]);
  }
  if constexpr (Block == 2) {
    return folded[0];
  } else {
    return sums_of<Block / 2>(folded);
  }
}

H2O_INLINE float sum_lanes(Vector v) {
  Vector same[lanes];
  std::fill(same, same + lanes, v);
  return sums_of(same)[0];
}

/// out[h * out_stride + r] = the sum of the lanes of sum[h][r].
template <int Rows, int Heads>
H2O_INLINE void store_sums(const Vector* sum, float* out, int64_t out_stride) {
  constexpr int sums = Rows * Heads;
  float totals[sums];
  if constexpr (sums % lanes == 0) {
    for (int i = 0; i < sums; i += lanes) {
      store(totals + i, sums_of(sum + i));
    }
  } else {
    for (int i = 0; i < sums; ++i) {
      totals[i] = sum_lanes(sum[i]);
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int r = 0; r < Rows; ++r) {
      out[h * out_stride + r] = totals[h * Rows + r];
    }
  }
}

template <class T, int Rows, int Heads>
H2O_INLINE void dot_block(
    const float* queries,
    const T* rows,
    int64_t stride,
    int dim,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Rows] = {};
  int d = 0;
  for (; d + lanes <= dim; d += lanes) {
    Vector query[Heads];
    for (int h = 0; h < Heads; ++h) {
      query[h] = load(queries + h * int64_t(dim) + d);
    }
    for (int r = 0; r < Rows; ++r) {
      Vector key = load(rows + r * stride + d);
      for (int h = 0; h < Heads; ++h) {
        sum[h][r] += query[h] * key;
      }
    }
  }
  store_sums<Rows, Heads>(&sum[0][0], out, out_stride);
  for (; d < dim; ++d) {
    for (int h = 0; h < Heads; ++h) {
      for (int r = 0; r < Rows; ++r) {
        out[h * out_stride + r] +=
            queries[h * int64_t(dim) + d] * to_float(rows[r * stride + d]);
      }
    }
  }
}

template <class T, int Heads>
H2O_INLINE void dot_heads(
    const float* queries,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  int n = 0;
  for (; n + H2O_ROW_BLOCK <= row_count; n += H2O_ROW_BLOCK) {
    for (int r = 0; r < H2O_ROW_BLOCK; ++r) {
      prefetch(rows + (n + rows_ahead + r) * stride, dim * int64_t(sizeof(T)));
    }
    dot_block<T, H2O_ROW_BLOCK, Heads>(
        queries, rows + n * stride, stride, dim, out + n, out_stride);
  }
  for (; n < row_count; ++n) {
    dot_block<T, 1, Heads>(queries, rows + n * stride, stride, dim, out + n, out_stride);
  }
}

template <class T>
H2O_TARGET void dot_rows_of(
    const float* queries,
    int heads,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  while (heads > 0) {
    int block = std::min(heads, head_block);
    switch (block) {
      case 4:
        dot_heads<T, 4>(queries, rows, stride, row_count, dim, out, out_stride);
        break;
      case 3:
        dot_heads<T, 3>(queries, rows, stride, row_count, dim, out, out_stride);
        break;
      case 2:
        dot_heads<T, 2>(queries, rows, stride, row_count, dim, out, out_stride);
        break;
      default:
        dot_heads<T, 1>(queries, rows, stride, row_count, dim, out, out_stride);
    }
    queries += block * int64_t(dim);
    out += block * out_stride;
    heads -= block;
  }
}

template <class T, int Heads, int Vectors>
H2O_INLINE void mix_block(
    const float* weights,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    bool accumulate,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Vectors] = {};
  if (accumulate) {
    for (int h = 0; h < Heads; ++h) {
      for (int i = 0; i < Vectors; ++i) {
        sum[h][i] = load(out + h * out_stride + i * lanes);
      }
    }
  }
  for (int n = 0; n < row_count; ++n) {
    prefetch(rows + (n + rows_ahead) * stride, Vectors * lanes * int64_t(sizeof(T)));
    Vector value[Vectors];
    for (int i = 0; i < Vectors; ++i) {
      value[i] = load(rows + n * stride + i * lanes);
    }
    for (int h = 0; h < Heads; ++h) {
      Vector weight = splat(weights[h * weight_stride + n]);
      for (int i = 0; i < Vectors; ++i) {
        sum[h][i] += weight * value[i];
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int i = 0; i < Vectors; ++i) {
      store(out + h * out_stride + i * lanes, sum[h][i]);
    }
  }
}

template <class T, int Heads>
H2O_INLINE void mix_heads(
    const float* weights,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  constexpr int block = H2O_DIM_BLOCK * lanes;
  int d = 0;
  for (; d + block <= dim; d += block) {
    mix_block<T, Heads, H2O_DIM_BLOCK>(
        weights, weight_stride, rows + d, stride, row_count, accumulate, out + d, dim);
  }
  for (; d + lanes <= dim; d += lanes) {
    mix_block<T, Heads, 1>(
        weights, weight_stride, rows + d, stride, row_count, accumulate, out + d, dim);
  }
  for (; d < dim; ++d) {
    for (int h = 0; h < Heads; ++h) {
      float total = accumulate ? out[h * int64_t(dim) + d] : 0.0f;
      for (int n = 0; n < row_count; ++n) {
        total += weights[h * weight_stride + n] * to_float(rows[n * stride + d]);
      }
      out[h * int64_t(dim) + d] = total;
    }
  }
}

template <class T>
H2O_TARGET void mix_rows_of(
    const float* weights,
    int heads,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  while (heads > 0) {
    int block = std::min(heads, head_block);
    switch (block) {
      case 4:
        mix_heads<T, 4>(
            weights, weight_stride, rows, stride, row_count, dim, accumulate, out);
        break;
      case 3:
        mix_heads<T, 3>(
            weights, weight_stride, rows, stride, row_count, dim, accumulate, out);
        break;
      case 2:
        mix_heads<T, 2>(
            weights, weight_stride, rows, stride, row_count, dim, accumulate, out);
        break;
      default:
        mix_heads<T, 1>(
            weights, weight_stride, rows, stride, row_count, dim, accumulate, out);
    }
    weights += block * weight_stride;
    out += block * int64_t(dim);
    heads -= block;
  }
}

template <class T>
H2O_TARGET void to_float32_of(
    const T* rows, int64_t stride, int row_count, int dim, float* out, int64_t out_stride) {
  for (int n = 0; n < row_count; ++n) {
    const T* row = rows + n * stride;
    float* to = out + n * out_stride;
    int d = 0;
    for (; d + lanes <= dim; d += lanes) {
      store(to + d, load(row + d));
    }
    for (; d < dim; ++d) {
      to[d] = to_float(row[d]);
    }
  }
}

#include "kernels_packed_impl.h"

template <class T>
H2O_INLINE int64_t elements(int64_t bytes) {
  return bytes / int64_t(sizeof(T));
}

H2O_TARGET void dot_rows(
    const float* queries,
    int heads,
    RowsView rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  if (rows.packing.bits < 16) {
    return dot_packed_rows(queries, heads, rows, row_count, dim, out, out_stride);
  }
  switch (rows.element) {
    case Element::float32:
      return dot_rows_of(
          queries, heads, static_cast<const float*>(rows.data),
          elements<float>(rows.stride), row_count, dim, out, out_stride);
    case Element::float16:
      return dot_rows_of(
          queries, heads, static_cast<const Float16*>(rows.data),
          elements<Float16>(rows.stride), row_count, dim, out, out_stride);
    case Element::bfloat16:
      return dot_rows_of(
          queries, heads, static_cast<const BFloat16*>(rows.data),
          elements<BFloat16>(rows.stride), row_count, dim, out, out_stride);
  }
}

H2O_TARGET void mix_rows(
    const float* weights,
    int heads,
    int64_t weight_stride,
    RowsView rows,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  if (rows.packing.bits < 16) {
    return mix_packed_rows(
        weights, heads, weight_stride, rows, row_count, dim, accumulate, out);
  }
  switch (rows.element) {
    case Element::float32:
      return mix_rows_of(
          weights, heads, weight_stride, static_cast<const float*>(rows.data),
          elements<float>(rows.stride), row_count, dim, accumulate, out);
    case Element::float16:
      return mix_rows_of(
          weights, heads, weight_stride, static_cast<const Float16*>(rows.data),
          elements<Float16>(rows.stride), row_count, dim, accumulate, out);
    case Element::bfloat16:
      return mix_rows_of(
          weights, heads, weight_stride, static_cast<const BFloat16*>(rows.data),
          elements<BFloat16>(rows.stride), row_count, dim, accumulate, out);
  }
}

H2O_TARGET void to_float32(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  if (rows.packing.bits < 16) {
    return unpack_rows(rows, 0, row_count, dim, out, out_stride);
  }
  switch (rows.element) {
    case Element::float32:
      return to_float32_of(
          static_cast<const float*>(rows.data), elements<float>(rows.stride), row_count,
          dim, out, out_stride);
    case Element::float16:
      return to_float32_of(
          static_cast<const Float16*>(rows.data), elements<Float16>(rows.stride), row_count,
          dim, out, out_stride);
    case Element::bfloat16:
      return to_float32_of(
          static_cast<const BFloat16*>(rows.data), elements<BFloat16>(rows.stride),
          row_count, dim, out, out_stride);
  }
}

/// Round to nearest, ties to even; NaN stays NaN.
H2O_INLINE void store(BFloat16* p, Vector v) {
  WordVector bits = __builtin_bit_cast(WordVector, v);
  WordVector rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  rounded = v == v ? rounded : (bits >> 16) | 0x40u;
  HalfWords words = __builtin_convertvector(rounded, HalfWords);
  std::memcpy(p, &words, sizeof(words));
}

H2O_INLINE void store(Float16* p, Vector v) {
  H2O_STORE_HALF(p, v);
}

template <class T>
H2O_TARGET void from_float32_of(const float* values, int count, T* out) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(out + i, load(values + i));
  }
  for (; i < count; ++i) {
    out[i] = narrowed<T>(values[i]);
  }
}

H2O_TARGET void from_float32(const float* values, int count, Element element, void* out) {
  switch (element) {
    case Element::float32:
      return from_float32_of(values, count, static_cast<float*>(out));
    case Element::float16:
      return from_float32_of(values, count, static_cast<Float16*>(out));
    case Element::bfloat16:
      return from_float32_of(values, count, static_cast<BFloat16*>(out));
  }
}

H2O_TARGET void update_scores(
    const float* m, int count, float decay, bool peak, float* scores) {
  const Vector infinity = splat(std::numeric_limits<float>::infinity());
  const Vector share = splat(1.0f - decay);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector seen = load(m + i), old = load(scores + i), faded = old * decay;
    Vector updated = peak ? (faded > seen ? faded : seen) : faded + seen * share;
    updated = old < Vector{} ? seen : updated;
    store(scores + i, seen < infinity ? updated : old); // NaN is not below
  }
  for (; i < count; ++i) {
    if (!std::isfinite(m[i])) {
      continue;
    }
    float faded = decay * scores[i];
    float updated = peak ? std::max(faded, m[i]) : faded + (1.0f - decay) * m[i];
    scores[i] = scores[i] < 0.0f ? m[i] : updated;
  }
}

/// One group by MLX's affine rule (its CPU backend's: halves round to even), operation
/// by operation, so that the bits agree; NaN packs as 0.
H2O_INLINE void quantize_group(
    const float* values,
    int group_size,
    int bits,
    int32_t* packed,
    float& scale,
    float& bias) {
  const float bins = float((1 << bits) - 1);
  Vector least = load(values), most = least;
  for (int d = lanes; d < group_size; d += lanes) {
    Vector v = load(values + d);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  float low = least[0], high = most[0];
  for (int lane = 1; lane < lanes; ++lane) {
    low = std::min(low, least[lane]);
    high = std::max(high, most[lane]);
  }
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  scale = std::max((high - low) / bins, 1e-7f);
  scale = from_low ? scale : -scale;
  const float steps = std::rint(edge / scale);
  bias = 0.0f;
  if (steps != 0.0f) {
    scale = edge / steps;
    bias = edge;
  }
  const Vector rounder = splat(12582912.0f); // 1.5 * 2^23: adding it rounds to int
  const Vector top = splat(bins);
  for (int d = 0; d < group_size; d += lanes) {
    Vector q = (load(values + d) - splat(bias)) / splat(scale);
    q = q > Vector{} ? q : Vector{};
    q = q < top ? q : top;
    q = (q + rounder) - rounder;
    IntVector whole = __builtin_convertvector(q, IntVector);
    std::memcpy(packed + d, &whole, sizeof(whole));
  }
}

H2O_TARGET void quantize_vector(
    const float* values,
    int dim,
    int bits,
    int group_size,
    uint8_t* words,
    float* scales,
    float* biases) {
  std::vector<int32_t> packed(group_size);
  for (int group = 0; group * group_size < dim; ++group) {
    quantize_group(
        values + group * group_size, group_size, bits, packed.data(), scales[group],
        biases[group]);
    uint8_t* to = words + size_t(group) * group_size * bits / 8;
    if (bits == 8) {
      for (int d = 0; d < group_size; ++d) {
        to[d] = uint8_t(packed[d]);
      }
    } else {
      for (int d = 0; d < group_size; d += 2) {
        to[d / 2] = uint8_t(packed[d] | packed[d + 1] << 4);
      }
    }
  }
}

H2O_TARGET float largest(const float* values, int count) {
  float result = lowest;
  int i = 0;
  if (count >= lanes) {
    Vector most = load(values);
    for (i = lanes; i + lanes <= count; i += lanes) {
      Vector v = load(values + i);
      most = v > most ? v : most;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      result = std::max(result, most[lane]);
    }
  }
  for (; i < count; ++i) {
    result = std::max(result, values[i]);
  }
  return result;
}

/// exp by range reduction to |r| <= ln(2)/2 and a polynomial of degree 6 (the
/// coefficients are those of Cephes' expf); within 2 ulp. NaN stays NaN.
H2O_INLINE Vector exponential(Vector x) {
  const Vector rounder = splat(12582912.0f); // 1.5 * 2^23: adding it rounds to int
  Vector shifted = x * 1.44269504088896341f + rounder;
  Vector whole = shifted - rounder;
  Vector r = x - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  Vector y = splat(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  IntVector exponent =
      __builtin_bit_cast(IntVector, shifted) - __builtin_bit_cast(IntVector, rounder);
  IntVector bits = __builtin_bit_cast(IntVector, y) + (exponent << 23);
  Vector result = __builtin_bit_cast(Vector, bits);
  result = x < splat(-87.0f) ? Vector{} : result;
  return x != x ? x : result;
}

H2O_TARGET float exp_shifted(const float* values, float shift, int count, float* out) {
  Vector total = {};
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector e = exponential(load(values + i) - shift);
    store(out + i, e);
    total += e;
  }
  float sum = sum_lanes(total);
  if (i < count) {
    float rest[lanes];
    std::fill(rest, rest + lanes, lowest);
    std::copy(values + i, values + count, rest);
    store(rest, exponential(load(rest) - shift));
    for (int lane = 0; i < count; ++i, ++lane) {
      out[i] = rest[lane];
      sum += rest[lane];
    }
  }
  return sum;
}

H2O_TARGET void add_scaled(const float* values, float factor, int count, float* sum) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(sum + i, load(sum + i) + load(values + i) * factor);
  }
  for (; i < count; ++i) {
    sum[i] += values[i] * factor;
  }
}

H2O_TARGET void add_scaled_abs(const float* values, float factor, int count, float* sum) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector v = load(values + i);
    v = v < Vector{} ? -v : v;
    v = v >= splat(-lowest) ? Vector{} : v;
    store(sum + i, load(sum + i) + v * factor);
  }
  for (; i < count; ++i) {
    float v = std::fabs(values[i]);
    sum[i] += v >= -lowest ? 0.0f : v * factor;
  }
}

H2O_TARGET float importance(
    const float* scores,
    const float* novelty,
    const int32_t* positions,
    int count,
    float novelty_weight,
    const Protection& protection,
    float* out) {
  float most = novelty_weight == 0.0f ? 0.0f : largest(scores, count);
  const Vector divisor = splat(most > 0.0f ? most : 1.0f);
  const Vector infinity = splat(std::numeric_limits<float>::infinity());
  Vector least = infinity;
  float rest = infinity[0];
  for (int i = 0; i < count; i += lanes) {
    int here = std::min(lanes, count - i);
    float score_tail[lanes] = {}, novelty_tail[lanes] = {};
    int32_t position_tail[lanes] = {};
    const float* score_at = scores + i;
    const float* novelty_at = novelty + i;
    const int32_t* position_at = positions + i;
    if (here < lanes) {
      std::copy(score_at, score_at + here, score_tail);
      std::copy(novelty_at, novelty_at + here, novelty_tail);
      std::copy(position_at, position_at + here, position_tail);
      score_at = score_tail;
      novelty_at = novelty_tail;
      position_at = position_tail;
    }
    Vector value = load(score_at);
    if (novelty_weight != 0.0f) {
      value = value > Vector{} && most > 0.0f ? value / divisor : Vector{};
      value += load(novelty_at) * novelty_weight;
    }
    IntVector position = load(position_at);
    IntVector held =
        (position < protection.sink_size) | (position >= protection.recent_from);
    for (int p = 0; p < protection.pinned_count; ++p) {
      held |= (position >= protection.pinned[2 * p]) &
              (position < protection.pinned[2 * p + 1]);
    }
    value = held ? infinity : value;
    if (here == lanes) {
      store(out + i, value);
      least = value < least ? value : least;
    } else {
      float tail[lanes];
      store(tail, value);
      std::copy(tail, tail + here, out + i);
      rest = *std::min_element(tail, tail + here);
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    rest = std::min(rest, least[lane]);
  }
  return rest;
}

#undef H2O_INLINE

} // namespace h2o::cpu::H2O_NAMESPACE
