// Vectors of floats: loading, storing and summing; part of kernels_impl.h, in its
// namespace and with its macros.

constexpr int lanes = H2O_LANES;
constexpr int head_block = 4;

typedef float Vector __attribute__((vector_size(4 * H2O_LANES)));
typedef int32_t IntVector __attribute__((vector_size(4 * H2O_LANES)));
typedef uint32_t WordVector __attribute__((vector_size(4 * H2O_LANES)));
typedef uint16_t HalfWords __attribute__((vector_size(2 * H2O_LANES)));

/// Calls run(first head, block) for all heads, where `block` is a constant number of
/// heads.
template <class Run>
H2O_INLINE void for_head_blocks(int heads, Run run) {
  for (int h = 0; h < heads; h += head_block) {
    switch (std::min(head_block, heads - h)) {
      case 4:
        run(h, std::integral_constant<int, 4>{});
        break;
      case 3:
        run(h, std::integral_constant<int, 3>{});
        break;
      case 2:
        run(h, std::integral_constant<int, 2>{});
        break;
      default:
        run(h, std::integral_constant<int, 1>{});
    }
  }
}

/// Calls run(T()), where T is the C++ type of `element`.
template <class Run>
H2O_INLINE void with_type(Element element, Run run) {
  switch (element) {
    case Element::float32:
      return run(float());
    case Element::float16:
      return run(Float16());
    case Element::bfloat16:
      return run(BFloat16());
  }
}

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

/// float16 to float32 by moving the exponent; infinities and NaN do not change.
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

H2O_INLINE Vector load(const BFloat16* p) {
  HalfWords words;
  std::memcpy(&words, p, sizeof(words));
  WordVector wide = __builtin_convertvector(words, WordVector) << 16;
  return __builtin_bit_cast(Vector, wide);
}

/// How many rows ahead of the current one are prefetched, enough to hide a cache miss.
constexpr int rows_ahead = 16;

H2O_INLINE void prefetch(const void* from, int64_t bytes) {
  constexpr int64_t line = 64;
  for (int64_t at = 0; at < bytes; at += line) {
    __builtin_prefetch(static_cast<const char*>(from) + at);
  }
}

/// Adds the two halves of every block of `Block` lanes, which makes the block half as long.
/// Returns a's blocks, then b's.
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

/// Loads `count` elements, but at most a vector; the other lanes get `filling`.
template <class T>
H2O_INLINE auto load(const T* from, int count, T filling = {}) {
  if (count >= lanes) {
    return load(from);
  }
  T elements[lanes];
  std::fill(std::copy(from, from + count, elements), elements + lanes, filling);
  return load(elements);
}

/// Stores the first `count` lanes, but at most all.
template <class T>
H2O_INLINE void store(T* to, Vector v, int count) {
  if (count >= lanes) {
    return store(to, v);
  }
  T elements[lanes];
  store(elements, v);
  std::copy(elements, elements + count, to);
}

H2O_INLINE float largest_lane(Vector v) {
  float result = v[0];
  for (int lane = 1; lane < lanes; ++lane) {
    result = std::max(result, v[lane]);
  }
  return result;
}

H2O_INLINE float scalar_to_float(float x) {
  return x;
}

H2O_INLINE float scalar_to_float(BFloat16 x) {
  return __builtin_bit_cast(float, uint32_t(x.bits) << 16);
}

H2O_INLINE float scalar_to_float(PairedBFloat16 x) {
  return scalar_to_float(BFloat16{x.bits});
}

H2O_INLINE float scalar_to_float(Float16 x) {
  return H2O_WIDEN_HALF(x);
}
