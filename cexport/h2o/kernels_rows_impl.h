// How the loops read the rows of one head, and rows in float32; part of kernels_impl.h, in its
// namespace and with its macros.

/// Rows that are not quantized.
template <class T>
struct DenseRows {
  /// Loading pairs of bfloat16 returns one vector of the even elements and one of the odd
  /// elements. Each takes one operation; widening single elements takes two.
  static constexpr bool is_paired = std::is_same_v<T, PairedBFloat16>;
  static constexpr int vectors_per_load = is_paired ? 2 : 1;
  static constexpr bool is_packed = false;

  const T* data;
  int64_t stride;                                                    // in elements
  static constexpr int group_size = std::numeric_limits<int>::max(); // one group

  /// Loads elements of row `n` from `d` on.
  H2O_INLINE void load(int n, int d, Vector* to) const {
    const T* from = data + n * stride + d;
    if constexpr (is_paired) {
      WordVector words;
      std::memcpy(&words, from, sizeof(words));
      to[0] = __builtin_bit_cast(Vector, words << 16);
      to[1] = __builtin_bit_cast(Vector, words & 0xffff0000u);
    } else {
      to[0] = H2O_NAMESPACE::load(from);
    }
  }

  H2O_INLINE float at(int n, int d) const {
    return scalar_to_float(data[n * stride + d]);
  }

  H2O_INLINE void prefetch(int n, int d, int count) const {
    H2O_NAMESPACE::prefetch(data + n * stride + d, count * int64_t(sizeof(T)));
  }
};

typedef uint8_t Bytes __attribute__((vector_size(H2O_LANES)));
typedef uint8_t HalfBytes __attribute__((vector_size(H2O_LANES / 2)));
typedef uint16_t BytePairs __attribute__((vector_size(H2O_LANES)));

/// Doubles the width in each step, because processors have instructions for that, but not for
/// widening bytes to words at once.
H2O_INLINE Vector widen_bytes(Bytes bytes) {
  HalfWords wide = __builtin_convertvector(bytes, HalfWords);
  return __builtin_convertvector(__builtin_convertvector(wide, IntVector), Vector);
}

/// `lanes` packed integers of `Bits` bits from element `first` of `words` on.
template <int Bits>
H2O_INLINE Vector load_packed(const uint8_t* words, int first) {
  Bytes bytes;
  if constexpr (Bits == 8) {
    std::memcpy(&bytes, words + first, sizeof(bytes));
  } else {
    HalfBytes packed;
    std::memcpy(&packed, words + first / 2, sizeof(packed));
    BytePairs pairs = __builtin_convertvector(packed, BytePairs);
    bytes = __builtin_bit_cast(Bytes, (pairs | (pairs << 4)) & 0x0f0f);
  }
  return H2O_WIDEN_BYTES(bytes);
}

/// Up to this many quantized rows are read at a time.
constexpr int tile_rows = 64;

/// The scaled integers of quantized rows, without the biases. Rows are innermost in `scales`.
template <int Bits>
struct PackedRows {
  static constexpr bool is_paired = false;
  static constexpr int vectors_per_load = 1;
  static constexpr bool is_packed = true;

  const uint8_t* words;
  int64_t stride;
  const float* scales; // [groups, tile_rows]
  int group_size;

  /// Loads elements of row `n` from `d` on, without their scale.
  H2O_INLINE void load(int n, int d, Vector* to) const {
    to[0] = load_packed<Bits>(words + n * stride, d);
  }

  H2O_INLINE void prefetch(int n, int d, int count) const {
    H2O_NAMESPACE::prefetch(words + n * stride + d * Bits / 8, count * Bits / 8);
  }
};

/// The scales or biases of a tile of rows, [groups, tile_rows]. Inlined, it would be slower.
template <class S>
__attribute__((noinline)) H2O_TARGET void load_scales(
    const void* from, int64_t stride, int row_count, int groups, float* out) {
  for (int n = 0; n < row_count; ++n) {
    auto row = static_cast<const uint8_t*>(from) + n * stride;
    for (int group = 0; group < groups; ++group) {
      S value;
      std::memcpy(&value, row + group * sizeof(S), sizeof(S));
      out[group * tile_rows + n] = scalar_to_float(value);
    }
  }
}

/// Calls run(rows, biases, first row, rows) for each tile of quantized rows.
template <int Bits, class Run>
H2O_TARGET void for_tiles(RowsView view, int row_count, int dim, Run run) {
  const Packing& packing = view.packing;
  const int groups = dim / packing.group_size;
  std::vector<float> scales(groups * tile_rows), biases(groups * tile_rows);
  for (int first = 0; first < row_count; first += tile_rows) {
    const int count = std::min(tile_rows, row_count - first);
    auto from = [first](const void* data, int64_t stride) {
      return static_cast<const uint8_t*>(data) + first * stride;
    };
    with_type(packing.element, [&](auto type) __attribute__((always_inline)) {
      load_scales<decltype(type)>(
          from(packing.scales, packing.scale_stride), packing.scale_stride, count, groups,
          scales.data());
      load_scales<decltype(type)>(
          from(packing.biases, packing.bias_stride), packing.bias_stride, count, groups,
          biases.data());
    });
    const PackedRows<Bits> rows{
        from(view.data, view.stride), view.stride, scales.data(), packing.group_size};
    run(rows, biases.data(), first, count);
  }
}

template <class T>
H2O_TARGET void to_float32_of(
    const T* rows, int64_t stride, int row_count, int dim, float* out, int64_t out_stride) {
  for (int n = 0; n < row_count; ++n) {
    for (int d = 0; d < dim; d += lanes) {
      store(out + n * out_stride + d, load(rows + n * stride + d, dim - d), dim - d);
    }
  }
}

template <int Bits, class S>
H2O_TARGET void unpack_rows_of(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  const Packing& packing = rows.packing;
  for (int n = 0; n < row_count; ++n) {
    auto words = static_cast<const uint8_t*>(rows.data) + n * rows.stride;
    auto scales = static_cast<const uint8_t*>(packing.scales) + n * packing.scale_stride;
    auto biases = static_cast<const uint8_t*>(packing.biases) + n * packing.bias_stride;
    float* to = out + n * out_stride;
    for (int group = 0; group * packing.group_size < dim; ++group) {
      S scale, bias;
      std::memcpy(&scale, scales + group * sizeof(S), sizeof(S));
      std::memcpy(&bias, biases + group * sizeof(S), sizeof(S));
      const Vector factor = splat(scalar_to_float(scale)),
                   offset = splat(scalar_to_float(bias));
      const int end = (group + 1) * packing.group_size;
      for (int d = group * packing.group_size; d < end; d += lanes) {
        Vector product = load_packed<Bits>(words, d) * factor;
        // Keeps the compiler from fusing product and sum, because mx.dequantize rounds the
        // product.
        __asm__("" : "+" H2O_REGISTER(product));
        store(to + d, product + offset);
      }
    }
  }
}

H2O_TARGET void to_float32(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  const bool is_packed = rows.packing.bits < 16;
  const Element element = is_packed ? rows.packing.element : rows.element;
  with_type(element, [&](auto type) __attribute__((always_inline)) {
    using T = decltype(type);
    if (!is_packed) {
      to_float32_of(
          static_cast<const T*>(rows.data), rows.stride / int64_t(sizeof(T)), row_count,
          dim, out, out_stride);
    } else if (rows.packing.bits == 8) {
      unpack_rows_of<8, T>(rows, row_count, dim, out, out_stride);
    } else {
      unpack_rows_of<4, T>(rows, row_count, dim, out, out_stride);
    }
  });
}
